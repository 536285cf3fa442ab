"""Our name in transformers' table of attention functions, and who answers it.

Every attention layer of a model with `attn_implementation = ATTENTION_NAME` calls the one
registered function; it passes the call to the handler that is set for the current forward. Some
architectures (StableLM, Nemotron) drop unknown keyword arguments of the forward on the way, so
the handler lies in a context variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

import torch
from transformers import AttentionInterface

__all__ = ["ATTENTION_NAME", "AttentionCall", "Handler", "handling"]

ATTENTION_NAME: Final = "engine_paged"


class AttentionCall(NamedTuple):
    """One layer's call of its attention function."""

    module: torch.nn.Module
    query: torch.Tensor
    """[1, heads, tokens, size]"""
    key: torch.Tensor
    """[1, kv heads, tokens, size]"""
    value: torch.Tensor
    mask: Any
    arguments: dict[str, Any]
    """Keyword arguments: scaling, sliding_window, softcap, s_aux, and what is passed through."""

    @property
    def layer(self) -> int | None:
        """Index of the layer in the model; None if the module does not know it."""
        return getattr(self.module, "layer_idx", None)

    @property
    def scale(self) -> float:
        """Factor of the scores."""
        scaling = self.arguments.get("scaling")
        return float(self.query.shape[-1] ** -0.5 if scaling is None else scaling)

    @property
    def sliding_window(self) -> int | None:
        """Tokens that a token attends to, itself included; None: all."""
        window: int | None = self.arguments.get("sliding_window")
        return window

    @property
    def soft_cap(self) -> float | None:
        """Bound of the scores."""
        cap: float | None = self.arguments.get("softcap")
        return cap

    @property
    def sinks(self) -> torch.Tensor | None:
        """[heads]: logits of each head's attention sink."""
        sinks: torch.Tensor | None = self.arguments.get("s_aux")
        return sinks


Handler = Callable[[AttentionCall], torch.Tensor]
"""Returns [1, tokens, heads, size], contiguous."""

_handler: ContextVar[Handler] = ContextVar("attention_handler")


@contextmanager
def handling(handler: Handler) -> Iterator[None]:
    """`handler` answers the attention calls of forwards within."""
    token = _handler.set(handler)
    try:
        yield
    finally:
        _handler.reset(token)


def _dispatch(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    **arguments: Any,
) -> tuple[torch.Tensor, None]:
    call = AttentionCall(module, query, key, value, attention_mask, arguments)
    return _handler.get()(call), None


AttentionInterface.register(ATTENTION_NAME, _dispatch)
# There is deliberately no function of this name in AttentionMaskInterface. For a name that is
# missing there, transformers' mask builders return None at once. A registered function that
# returns None has the same result, but only after position_ids were searched for packed
# sequences: several operations a forward, and on accelerators a wait for the device.
