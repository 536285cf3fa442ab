"""The entry point. Imported in several processes, so it stays light: the worker and the model
source are named as strings and imported only where they are used."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.model import ModelSource
from hookspecs.contracts.worker import Worker

from ngram_runner.options import NgramOptions

__all__ = ["NgramPlugin", "plugin"]


class NgramPlugin(EngineHooks):
    """Offers a model source and the worker that runs its models."""

    PLUGIN = PluginInfo(
        name="ngram",
        api=">=1.0,<2",
        description="An n-gram language model made from a text file",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.CORE, ProcessRole.WORKER}),
    )

    @hookimpl
    def register_model_sources(self) -> Iterable[Provider[ModelSource]]:
        """Offer the model source `ngram`."""
        yield Provider(
            "ngram",
            "ngram_runner.source:NgramSource",
            options=NgramOptions,
            description="`ngram:PATH`: a text file, of which a model is made.",
        )

    @hookimpl
    def register_workers(self) -> Iterable[Provider[Worker]]:
        """Offer the worker `ngram`."""
        yield Provider(
            "ngram",
            "ngram_runner.worker:NgramWorker",
            options=NgramOptions,
            description="Counts n-grams of a text and chooses the next token by them.",
        )


plugin = NgramPlugin()
