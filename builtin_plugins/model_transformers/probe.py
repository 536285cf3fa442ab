"""Can this architecture run on a paged cache? What a small forward shows.

A spy answers the attention calls of one flattened batch: each token attends to itself only. So
every token's logits must be those that the token has alone, and the calls tell what each layer
keeps and needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from builtin_plugins.model_transformers.interface import AttentionCall, handling
from builtin_plugins.model_transformers.support import config_value, text_config, unsupported

__all__ = ["LayerRecord", "probe"]

_HANDLED = frozenset({"scaling", "sliding_window", "softcap", "s_aux"})
_HARMLESS = frozenset(
    {
        # Chosen by the caller of the forward, or already in effect when attention is called.
        "dropout",
        "is_causal",
        "position_ids",
        "position_embeddings",
        "use_cache",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "return_dict",
    }
)
_POSITIONS = [0, 1, 2, 3, 7, 2]
_KEPT = [3, 5]
_TOLERANCE = {torch.float32: 1e-4}
_HALF_TOLERANCE = 5e-2
"""Relative to the largest logit; matrix products of other shapes round differently."""


@dataclass(frozen=True)
class LayerRecord:
    """One layer's attention, as it was called."""

    layer: int
    num_kv_heads: int
    head_size: int
    sliding_window: int | None
    soft_cap: bool
    sinks: bool


def probe(model: Any) -> list[LayerRecord]:
    """What each layer needs, in order. UnsupportedModelError, with the reason.

    On the meta device there are no values to compare; all else is checked there too.
    """
    device = next(model.parameters()).device
    tokens = torch.arange(1, len(_POSITIONS) + 1, device=device)
    positions = torch.tensor(_POSITIONS, device=device)
    kept = torch.tensor(_KEPT, device=device)
    together, records = _spied_forward(model, tokens, positions, kept)
    layers = [record.layer for record in records]
    count = config_value(text_config(model.config), "num_hidden_layers")
    if layers != list(range(count)):
        raise unsupported(
            model.config, f"attention is called for layers {layers} where it has {count} layers"
        )
    if tuple(together.shape[:2]) != (1, len(_KEPT)):
        raise unsupported(
            model.config,
            f"logits of {len(_KEPT)} tokens were asked for, and it gave {tuple(together.shape)}",
        )
    if device.type != "meta":
        rows = torch.arange(len(_KEPT), device=device)
        alone, _ = _spied_forward(model, tokens[kept], positions[kept], rows)
        error = ((alone - together).abs().max() / together.abs().max().clamp_min(1e-9)).item()
        if not error <= _TOLERANCE.get(together.dtype, _HALF_TOLERANCE):
            raise unsupported(
                model.config,
                f"tokens of a batch influence each other outside attention (by {error:.1e})",
            )
    return records


def _spied_forward(
    model: Any, tokens: torch.Tensor, positions: torch.Tensor, kept: torch.Tensor
) -> tuple[torch.Tensor, list[LayerRecord]]:
    records: list[LayerRecord] = []

    def spy(call: AttentionCall) -> torch.Tensor:
        reason = _reason(call, len(tokens))
        if reason is not None:
            raise unsupported(model.config, reason)
        assert call.layer is not None
        records.append(
            LayerRecord(
                layer=call.layer,
                num_kv_heads=call.key.shape[1],
                head_size=call.key.shape[3],
                sliding_window=call.sliding_window,
                soft_cap=call.soft_cap is not None,
                sinks=call.sinks is not None,
            )
        )
        groups = call.query.shape[1] // call.key.shape[1]
        return call.value.repeat_interleave(groups, 1).transpose(1, 2).contiguous()

    with torch.inference_mode(), handling(spy):
        output = model(
            input_ids=tokens[None],
            position_ids=positions[None],
            use_cache=False,
            logits_to_keep=kept,
        )
    return output.logits, records


def _reason(call: AttentionCall, tokens: int) -> str | None:
    """Why a call can not be answered from a paged cache."""
    if call.layer is None:
        return "an attention layer does not know its index"
    if call.mask is not None:
        return "it makes its own attention mask"
    known = _HANDLED | _HARMLESS
    unknown = sorted(k for k, v in call.arguments.items() if k not in known and v is not None)
    if unknown:
        return f"its attention depends on {', '.join(unknown)}"
    causal = call.arguments.get("is_causal")
    if not (getattr(call.module, "is_causal", True) if causal is None else causal):
        return "its attention is not causal"
    heads, kv_heads = call.query.shape[1], call.key.shape[1]
    if call.key.shape != call.value.shape:
        return f"keys {tuple(call.key.shape)} and values {tuple(call.value.shape)} differ in shape"
    sizes = (call.query.shape[0], call.query.shape[2], call.key.shape[2], call.query.shape[3])
    if sizes != (1, tokens, tokens, call.key.shape[3]) or heads % kv_heads:
        return f"queries {tuple(call.query.shape)} do not fit keys {tuple(call.key.shape)}"
    return None
