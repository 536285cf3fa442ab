"""Which plugins are installed: entry points of all distributions. Nothing is imported."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import importlib_metadata
import msgspec
from packaging.utils import canonicalize_name

from framework.plugins.imports import locate_object
from hookspecs.errors import PluginConflictError

__all__ = [
    "BUILTIN_DISTRIBUTION",
    "GROUP",
    "PluginRef",
    "Source",
    "check_unique_names",
    "discover",
    "installed_version",
    "local_ref",
]

GROUP: Final = "framework.plugins"
BUILTIN_DISTRIBUTION: Final = "engine-framework"
"""This project's own distribution: its plugins are the built-in ones, whichever they are."""

logger = logging.getLogger("framework.plugins")


class Source(StrEnum):
    """Where a plugin comes from."""

    BUILTIN = "builtin"
    ENTRY_POINT = "entry_point"
    LOCAL = "local"
    """An object given to `launch`."""


class PluginRef(msgspec.Struct, frozen=True, kw_only=True):
    """Where to import one plugin from. Crosses processes."""

    name: str
    """Of the plugin. An installed plugin's entry point has the same name, so that it can be
    blocked without importing it."""
    value: str
    """`package.module:attribute`; empty for a local object that no other process can import."""
    source: Source
    distribution: str | None = None
    """Normalised name; None for local objects."""
    version: str | None = None

    def __str__(self) -> str:
        if self.distribution is None:
            return f"plugin {self.name!r} (local object)"
        return f"plugin {self.name!r} (distribution {self.distribution} {self.version})"


def discover() -> list[PluginRef]:
    """All installed plugins: built-in ones first, each group sorted by normalised distribution,
    then entry-point name.

    Of a distribution that is on `sys.path` twice, only the first counts, as for imports.
    """
    refs: list[PluginRef] = []
    seen: set[str] = set()
    for distribution in importlib_metadata.distributions():
        try:
            entry_points = distribution.entry_points.select(group=GROUP)
            # Few have any: the metadata of the others, slow to parse, is not read.
            if entry_points:
                name = str(canonicalize_name(distribution.name))
                first = importlib_metadata.distribution(name)
                if name not in seen and first.locate_file("") == distribution.locate_file(""):
                    seen.add(name)
                    refs += _refs_of(entry_points, name, distribution.version)
        except Exception as error:  # metadata of others can be damaged in any way
            logger.warning(
                "skipping the plugins of a distribution with damaged metadata (%s): %s: %s",
                getattr(distribution, "_path", distribution),
                type(error).__name__,
                error,
            )
    return sorted(
        refs,
        key=lambda ref: (
            ref.source is not Source.BUILTIN,
            ref.distribution or "",
            ref.name,
            ref.value,
        ),
    )


def _refs_of(
    entry_points: Iterable[importlib_metadata.EntryPoint], name: str, version: str
) -> Iterable[PluginRef]:
    source = Source.BUILTIN if name == BUILTIN_DISTRIBUTION else Source.ENTRY_POINT
    for entry_point in entry_points:
        yield PluginRef(
            name=entry_point.name,
            value=entry_point.value.partition("[")[0].strip(),
            source=source,
            distribution=name,
            version=version,
        )


def local_ref(plugin: object, name: str) -> PluginRef:
    """Reference of a plugin object that was given to `launch`."""
    return PluginRef(name=name, value=locate_object(plugin) or "", source=Source.LOCAL)


def check_unique_names(refs: Sequence[PluginRef]) -> None:
    """PluginConflictError, naming both distributions, when two plugins have one name."""
    first: dict[str, PluginRef] = {}
    for ref in refs:
        other = first.setdefault(ref.name, ref)
        if other is not ref:
            raise PluginConflictError(
                f"two plugins are called {ref.name!r}: {other.value or 'an object'} of "
                f"{_origin(other)} and {ref.value or 'an object'} of {_origin(ref)}. "
                "Uninstall one, or block both with plugins.block",
                plugin=ref.name,
                distribution=ref.distribution,
            )


def _origin(ref: PluginRef) -> str:
    return f"distribution {ref.distribution}" if ref.distribution else "a local object"


def installed_version(distribution: str) -> str | None:
    """Version of a distribution in this process; None when it is not installed."""
    try:
        return importlib_metadata.version(distribution)
    except importlib_metadata.PackageNotFoundError:
        return None
