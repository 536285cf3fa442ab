"""Fake installed distributions: a directory with modules and a `.dist-info`, on sys.path."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from framework.plugins import PluginManager
from framework.plugins.discovery import BUILTIN_DISTRIBUTION
from hookspecs.config import EngineConfig, PluginsConfig

HEADER = """
from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
"""

PLUGIN = """
class Fake(EngineHooks):
    PLUGIN = PluginInfo(name={name!r}, api={api!r}{info})
{body}

plugin = Fake()
"""


def _distributions_with_plugins() -> set[str]:
    return {
        entry_point.dist.name
        for entry_point in importlib.metadata.entry_points(group="framework.plugins")
        if entry_point.dist is not None
    }


class Site:
    """Installs distributions for one test."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.modules: list[str] = []
        self._monkeypatch = monkeypatch
        # Shadow the real distributions with plugins: those of the test are the only ones.
        for name in {BUILTIN_DISTRIBUTION, *_distributions_with_plugins()}:
            self.install(name, {}, {})

    def install(
        self,
        distribution: str,
        entry_points: Mapping[str, str],
        modules: Mapping[str, str],
        *,
        version: str = "1.0",
        directory: str | None = None,
        first: bool = True,
    ) -> Path:
        """Write a distribution and put its directory first (or last) on sys.path."""
        path = self.root / (directory or distribution)
        info = path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        )
        lines = [f"{name} = {value}" for name, value in entry_points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[framework.plugins]", *lines, ""]))
        for name, source in modules.items():
            (path / f"{name}.py").write_text(source)
            self.modules.append(name)
        if first:
            self._monkeypatch.syspath_prepend(str(path))
        else:
            self._monkeypatch.setattr(sys, "path", [*sys.path, str(path)])
        importlib.invalidate_caches()
        return path

    def plugin(
        self,
        name: str,
        body: str = "",
        *,
        api: str = ">=1.0,<2",
        info: str = "",
        top: str = "",
        distribution: str | None = None,
        version: str = "1.0",
    ) -> str:
        """Install a distribution with one plugin; returns the name of its module.

        `body` is the class's methods, `info` more arguments of PluginInfo, `top` module code.
        """
        module = "fake_" + (distribution or name).replace("-", "_")
        source = (
            HEADER
            + textwrap.dedent(top)
            + PLUGIN.format(
                name=name,
                api=api,
                info=f", {info}" if info else "",
                body=textwrap.indent(textwrap.dedent(body), "    "),
            )
        )
        self.install(
            distribution or f"{name}-dist",
            {name: f"{module}:plugin"},
            {module: source},
            version=version,
        )
        return module


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """An environment in which no plugin is installed but those of the test."""
    made = Site(tmp_path, monkeypatch)
    yield made
    for name in made.modules:
        sys.modules.pop(name, None)


@pytest.fixture
def build(site: Site) -> Callable[..., PluginManager]:
    """`build(*objects, config=…, environ=…, **plugins_section)`."""

    def make(
        *objects: object,
        config: EngineConfig | None = None,
        environ: Mapping[str, str] | None = None,
        **section: object,
    ) -> PluginManager:
        if config is None:
            config = EngineConfig(plugins=PluginsConfig(**section))  # type: ignore[arg-type]
        return PluginManager.build(config, objects=objects, environ=environ or {})

    return make
