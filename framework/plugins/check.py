"""`framework plugins check`: one plugin against the running contract, for its author."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from typing import Any, Final

import msgspec

from framework.config.suggest import suggestion
from framework.plugins.command_arguments import wrong_arguments
from framework.plugins.construct import (
    check_members,
    declares_capabilities,
    import_target,
    wrong_capabilities,
)
from framework.plugins.counters import Counters
from framework.plugins.discovery import PluginRef, Source, discover, local_ref
from framework.plugins.loading import LoadedPlugin, load_plugin
from framework.plugins.manifest import name_of
from framework.plugins.registry import RegisteredProvider
from framework.plugins.validate import new_registrar
from hookspecs.contracts.engine_command import EngineCommand
from hookspecs.errors import ContractViolation, FrameworkError, PluginError, PluginLoadError
from hookspecs.info import ProcessRole

__all__ = ["HEAVY_MODULES", "IMPORT_BUDGET_S", "check_plugin", "installed_plugins"]

HEAVY_MODULES: Final = ("torch", "transformers", "numpy")
"""What a plugin's entry module must not load: each takes from tenths of a second to seconds."""
IMPORT_BUDGET_S: Final = 0.25
"""Seconds of processor time that an entry module may take in a fresh interpreter, the contract
already imported: what else the machine does is no matter."""
IMPORT_TIMEOUT_S: Final = 120.0

_PROBE: Final = """
import importlib, json, os, sys, time
sys.path[:] = json.loads(sys.argv[1])
import hookspecs.kinds
begin = time.process_time()
importlib.import_module(sys.argv[2])
print(json.dumps([time.process_time() - begin, sorted(sys.modules)]), flush=True)
os._exit(0)
"""


def check_plugin(plugin: str | object) -> list[str]:
    """What is wrong with a plugin, given by name (installed) or as an object; empty if nothing.

    PluginLoadError when no plugin of that name is installed. Imports the targets of all its
    providers into this process, and its entry module into a fresh interpreter.
    """
    if isinstance(plugin, str):
        refs = installed_plugins(plugin)
        ref, instance = refs[0], None
        findings = [f"the name {plugin!r} is also claimed by {other}" for other in refs[1:]]
    else:
        ref, instance, findings = local_ref(plugin, name_of(plugin)), plugin, []
    try:
        loaded = load_plugin(
            ref,
            new_registrar(),
            Counters(),
            role=ProcessRole.LAUNCHER,
            takes_part=lambda spec: True,
            instance=instance,
        )
    except PluginError as error:
        return [*findings, str(error)]
    if not loaded.hooks:
        findings.append(f"{ref} implements no hook; are its methods marked with @hookimpl?")
    findings += _check_options_structs(loaded)
    for found in loaded.providers:
        findings += _check_provider(found)
    if ref.value:
        findings += _check_import(ref)
    return findings


def installed_plugins(name: str) -> list[PluginRef]:
    """All that claim the name; more than one is a finding. PluginLoadError when none does."""
    refs = discover()
    found = [ref for ref in refs if ref.name == name]
    if not found:
        names = sorted({ref.name for ref in refs})
        raise PluginLoadError(
            f"no plugin {name!r} is installed; there are: {', '.join(names) or 'none'}."
            f"{suggestion(name, names)}",
            plugin=name,
        )
    return found


def _check_options_structs(loaded: LoadedPlugin) -> list[str]:
    providers = [found.provider for found in loaded.providers]
    structs = {loaded.info.options}
    structs |= {provider.options for provider in providers}
    structs |= {provider.request_options for provider in providers}
    findings = []
    for options in sorted(
        (one for one in structs if one is not None), key=lambda one: one.__name__
    ):
        config = options.__struct_config__
        lacks = [
            name
            for name, there in (
                ("frozen", config.frozen),
                ("forbid_unknown_fields", config.forbid_unknown_fields),
            )
            if not there
        ]
        if lacks:
            findings.append(f"options struct {options.__name__} is not {' and '.join(lacks)}")
        findings += [
            f"option {options.__name__}.{field.name} has no description: annotate it with "
            "msgspec.Meta(description=...)"
            for field in msgspec.structs.fields(options)
            if not _described(field.type)
        ]
    return findings


def _described(annotation: Any) -> bool:
    return any(
        isinstance(meta, msgspec.Meta) and meta.description
        for meta in getattr(annotation, "__metadata__", ())
    )


def _check_provider(found: RegisteredProvider) -> list[str]:
    what = f"{found.kind.name} {found.provider.name!r}"
    try:
        target: Any = import_target(found)
    except FrameworkError as error:
        return [str(error)]
    if not inspect.isclass(target):
        return [] if callable(target) else [f"{what}: {found.provider.target} is not callable"]
    contract: type[Any] = found.kind.contract
    findings = []
    if not issubclass(target, contract):
        findings.append(f"{what}: {target.__name__} does not derive from {contract.__name__}")
    if inspect.isabstract(target):
        missing = ", ".join(sorted(getattr(target, "__abstractmethods__", ())))
        findings.append(f"{what}: {target.__name__} lacks {missing}")
    try:
        check_members(found, target)
    except ContractViolation as error:
        findings.append(str(error))
    if issubclass(target, EngineCommand):
        wrong = wrong_arguments(target)
        findings += [] if wrong is None else [f"{what}: {wrong}"]
    declared = getattr(target, "capabilities", None)
    if (
        issubclass(target, contract)
        and declares_capabilities(found, target)
        and isinstance(declared, frozenset)
    ):
        wrong = wrong_capabilities(found, declared)
        findings += [] if wrong is None else [f"{what}: {wrong}"]
    return findings


def _check_import(ref: PluginRef) -> list[str]:
    """Import the entry module in a fresh interpreter: what it takes and what it loads."""
    module = ref.value.partition(":")[0]
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE, json.dumps(sys.path), module],
            capture_output=True,
            text=True,
            timeout=IMPORT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [f"importing {module} alone takes more than {IMPORT_TIMEOUT_S:.0f} s"]
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        if ref.source is Source.LOCAL:
            return [f"{module} can not be imported in another process: {last}"]
        return [f"importing {module} alone fails: {last}"]
    seconds, modules = json.loads(done.stdout.strip().rpartition("\n")[2])
    findings = [f"importing {module} loads {name}" for name in HEAVY_MODULES if name in modules]
    if seconds > IMPORT_BUDGET_S:
        findings.append(
            f"importing {module} takes {seconds:.2f} s; more than {IMPORT_BUDGET_S} s makes every "
            "process start late"
        )
    return findings
