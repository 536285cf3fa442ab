"""The entry point. Imported in several processes, so it stays light: the model source itself is
named as a string and imported only where it is used."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.model import ModelSource

from archive_source.options import ArchiveOptions

__all__ = ["ArchivePlugin", "plugin"]


class ArchivePlugin(EngineHooks):
    """Offers one model source."""

    PLUGIN = PluginInfo(
        name="archive",
        api=">=1.0,<2",
        description="Model source: models packed in a tar or zip file",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.FRONTEND}),
    )

    @hookimpl
    def register_model_sources(self) -> Iterable[Provider[ModelSource]]:
        """Offer the model source `archive`."""
        yield Provider(
            "archive",
            "archive_source.source:ArchiveSource",
            options=ArchiveOptions,
            description="`archive:PATH` of a .tar, .tar.gz or .zip, unpacked once.",
        )


plugin = ArchivePlugin()
