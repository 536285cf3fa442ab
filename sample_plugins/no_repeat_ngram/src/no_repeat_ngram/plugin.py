"""The entry point. Imported in every process, so it stays light: the processor itself is named
as a string and imported only for the first request that asks for it."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.logits import LogitsProcessor

from no_repeat_ngram.options import NoRepeatNgram

__all__ = ["NoRepeatNgramPlugin", "plugin"]


class NoRepeatNgramPlugin(EngineHooks):
    """Offers one logits processor.

    No `roles`: the front end checks a request's options, the worker runs the processor.
    """

    PLUGIN = PluginInfo(
        name="no-repeat-ngram",
        api=">=1.0,<2",
        description="Logits processor: no n-gram occurs twice",
    )

    @hookimpl
    def register_logits_processors(self) -> Iterable[Provider[LogitsProcessor]]:
        """Offer the processor `no-repeat-ngram`."""
        yield Provider(
            "no-repeat-ngram",
            "no_repeat_ngram.processor:NoRepeatNgramProcessor",
            request_options=NoRepeatNgram,
            description="Forbids each token that would complete an n-gram of the text again.",
        )


plugin = NoRepeatNgramPlugin()
