"""A logits processor that decides every token, and the plugin that offers it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.logits import LogitsProcessor, LogitsProcessorContext
from hookspecs.types.step import NewRequest

if TYPE_CHECKING:
    import torch

__all__ = ["FIRST", "FORCED", "ForcedOptions", "ForcedTokens", "OffersForcedTokens", "forced"]

FORCED: Final = "conformance-forced"
"""The provider's name, and the key in `extensions`."""
FIRST: Final = 2
"""The token of the first output; that of each other is one more."""


class ForcedOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`extensions["conformance-forced"]`."""

    raise_at: Annotated[
        int | None, msgspec.Meta(description="The processor raises instead of this output.")
    ] = None


class ForcedTokens(LogitsProcessor):
    """Output i is token FIRST + i, whatever the model says."""

    def __init__(self, context: LogitsProcessorContext) -> None:
        super().__init__(context)
        options: ForcedOptions = context.request_options
        self._raise_at = options.raise_at
        self._count = 0

    def start(self, prompt: Sequence[int], generated: Sequence[int]) -> None:
        self._count = len(generated)

    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        if self._count == self._raise_at:
            raise RuntimeError("the conformance kit lets this processor fail")
        logits[:] = float("-inf")
        logits[FIRST + self._count] = 0.0
        return logits

    def accept(self, token: int) -> None:
        self._count += 1


def forced(config: Any) -> Any:
    """What a worker is given as `create_logits_processors`."""

    def create(request: NewRequest, vocab_size: int) -> Sequence[LogitsProcessor]:
        params = request.sampling_params
        if FORCED not in params.extensions:
            return ()
        context = LogitsProcessorContext(
            config=config,
            request_id=request.request_id,
            params=params,
            request_options=msgspec.convert(params.extensions[FORCED], ForcedOptions),
            vocab_size=vocab_size,
        )
        return (ForcedTokens(context),)

    return create


class OffersForcedTokens(EngineHooks):
    """Registers it, for requests to a real engine."""

    PLUGIN = PluginInfo(name="conformance-processors", api=">=1.0,<2")

    @hookimpl
    def register_logits_processors(self) -> Iterable[Provider[LogitsProcessor]]:
        """See EngineHooks."""
        yield Provider(FORCED, f"{__name__}:ForcedTokens", request_options=ForcedOptions)
