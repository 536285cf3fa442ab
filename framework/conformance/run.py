"""`conform`: the zero-code form. Runs what fits a plugin and says what came of it."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from framework.conformance.catalogue import runs_of
from framework.conformance.journal import Journal, Line
from framework.conformance.report import ProviderEntry, Report
from framework.conformance.session import run_suites
from framework.conformance.subject import Examples, Settings
from framework.plugins.discovery import BUILTIN_DISTRIBUTION, installed_version
from framework.plugins.manifest import api_text
from framework.plugins.registry import RegisteredProvider

__all__ = ["PLACE", "conform", "plain_values"]

PLACE: Final = "{tmp}"
"""In settings and examples: a directory that is made for the run, and removed after it."""


def conform(
    plugin: str | object,
    *,
    settings: Settings | None = None,
    examples: Mapping[str, Examples] | None = None,
    seed: int = 0,
    device: str = "cpu",
    only: Collection[str] = (),
    expected_failures: Mapping[str, str] | None = None,
    quiet: bool = False,
    journal: Journal | None = None,
) -> Report:
    """Test an installed plugin by its name, or a plugin object.

    `settings`: sections of the configuration that it needs. `examples`: by `kind:provider`, what
    suites can not guess. In the texts of both `{tmp}` is a directory made for the run. `seed`: of
    all random choices. `device`: where suites of what computes with torch put their tensors.
    `only`: names of tests. `expected_failures`: `suite::test` to the reason. `quiet`: print
    nothing. `journal`: is told of the run as it goes on. PluginError when the plugin can not be
    loaded, ConfigError for a wrong argument.
    """
    given, examples = plain_values(settings or {}), plain_values(examples or {})
    with tempfile.TemporaryDirectory(prefix="conform-") as directory:
        runs, untested = runs_of(plugin, _placed(given, directory), _placed(examples, directory))
        loaded = runs[0].subject.loaded
        report = Report(
            plugin=loaded.ref.name,
            distribution=loaded.ref.distribution,
            version=loaded.ref.version,
            api=loaded.info.api,
            kit=api_text(),
            environment=_environment(),
            seed=seed,
            device=device,
            settings=given,
            examples=examples,
            providers=tuple(map(_entry_of, loaded.providers)),
            untested=tuple(untested),
            only=tuple(only),
            tests=(),
        )
        if journal is not None:
            journal.write(Line(begun=report))
        entries = run_suites(
            runs,
            seed=seed,
            device=device,
            only=only,
            expected_failures=expected_failures or {},
            quiet=quiet,
            journal=journal,
        )
        if journal is not None:
            journal.write(Line(finished=True))
    return msgspec.structs.replace(report, tests=tuple(entries))


def _entry_of(found: RegisteredProvider) -> ProviderEntry:
    return ProviderEntry(
        kind=found.kind.name,
        name=found.provider.name,
        capabilities=tuple(sorted(map(str, found.provider.capabilities))),
    )


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of dicts, lists, texts and numbers."""
    plain: dict[str, Any] = msgspec.to_builtins(values)
    return plain


def _placed(value: Any, directory: str) -> Any:
    """The same with the directory of the run where a text names it."""
    if isinstance(value, str):
        return value.replace(PLACE, directory)
    if isinstance(value, dict):
        return {key: _placed(each, directory) for key, each in value.items()}
    return [_placed(each, directory) for each in value] if isinstance(value, list) else value


def _environment() -> dict[str, str]:
    versions = {
        name: installed_version(name) for name in (BUILTIN_DISTRIBUTION, "torch", "transformers")
    }
    found = {name: version for name, version in versions.items() if version is not None}
    return {"python": platform.python_version(), "system": platform.system(), **found}
