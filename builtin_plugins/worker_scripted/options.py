"""Options of the worker and model source `scripted`, and what the worker can do."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from hookspecs.contracts.model import ModelInfo
from hookspecs.contracts.worker import WorkerCapability

__all__ = ["CAPABILITIES", "ScriptedOptions", "fitted"]

CAPABILITIES = frozenset(
    {
        WorkerCapability.ASYNC_STEPPING,
        WorkerCapability.LOGITS_PROCESSORS,
        WorkerCapability.POOLING,
        WorkerCapability.PROMPT_LOGPROBS,
        WorkerCapability.SLEEP,
        WorkerCapability.SLIDING_WINDOW,
        WorkerCapability.UPDATE_WEIGHTS,
    }
)


class ScriptedOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`plugins.options.scripted`."""

    vocab_size: Annotated[int, Meta(ge=2, description="Token ids are below this.")] = 1000
    max_model_len: Annotated[int, Meta(ge=1, description="Context of the model, in tokens.")] = 4096
    eos_token_id: Annotated[int, Meta(ge=0, description="End token; below vocab_size.")] = 2
    num_layers: Annotated[int, Meta(ge=1, description="Attention layers in the KV cache.")] = 2
    sliding_window: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="Window of the layers; None: all.")
    ] = None
    num_groups: Annotated[
        int,
        Meta(ge=1, le=2, description="2: every other layer attends to all tokens, not a window."),
    ] = 1
    verify: Annotated[
        bool,
        Meta(
            description="Keep a KV cache and check every step against it. Off: a step costs "
            "next to nothing, to measure the engine around it."
        ),
    ] = True

    def __post_init__(self) -> None:
        if not self.eos_token_id < self.vocab_size:
            raise ValueError(
                f"eos_token_id is {self.eos_token_id}; it must be below vocab_size "
                f"({self.vocab_size})"
            )
        if self.num_groups == 2 and (self.sliding_window is None or self.num_layers < 2):
            raise ValueError("num_groups = 2 needs a sliding_window and num_layers >= 2")


def fitted(options: ScriptedOptions, model: ModelInfo) -> ScriptedOptions:
    """For a model, which may come from another source: token ids are those of both, and the end
    token is the model's, if it has one among them."""
    vocab_size = min(options.vocab_size, model.vocab_size)
    ends = [token for token in model.eos_token_ids if token < vocab_size]
    eos = ends[0] if ends else min(options.eos_token_id, vocab_size - 1)
    return msgspec.structs.replace(options, vocab_size=vocab_size, eos_token_id=eos)
