"""A transformers model whose attention goes through a paged cache."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from builtin_plugins.model_transformers.interface import AttentionCall, handling
from builtin_plugins.model_transformers.probe import LayerRecord
from hookspecs.contracts.attention import AttentionCapability
from hookspecs.contracts.model import LoadedModel
from hookspecs.errors import UnsupportedFeatureError
from hookspecs.types.kv import KVLayerSpec

__all__ = ["PagedTransformersModel"]

_DTYPE_FEATURES = {
    torch.bfloat16: AttentionCapability.BFLOAT16,
    torch.float16: AttentionCapability.FLOAT16,
}


class PagedTransformersModel(LoadedModel):
    """Worker process; one forward at a time."""

    def __init__(
        self, model: Any, layers: list[LayerRecord], unused_weights: frozenset[str] = frozenset()
    ) -> None:
        """`unused_weights`: what the checkpoint has and the model has no place for."""
        self._model = model
        self._unused_weights = unused_weights
        self._layers = layers
        self._dtype: torch.dtype = model.dtype
        self._attention: Callable[..., torch.Tensor] | None = None

    @property
    def layer_specs(self) -> list[KVLayerSpec]:
        return [
            KVLayerSpec(
                layer=layer.layer,
                num_kv_heads=layer.num_kv_heads,
                head_size=layer.head_size,
                dtype=str(self._dtype).removeprefix("torch."),
                itemsize=self._dtype.itemsize,
                sliding_window=layer.sliding_window,
            )
            for layer in self._layers
        ]

    @property
    def attention_features(self) -> frozenset[str]:
        features: set[str] = set()
        if self._dtype in _DTYPE_FEATURES:
            features.add(_DTYPE_FEATURES[self._dtype])
        if any(layer.sliding_window is not None for layer in self._layers):
            features.add(AttentionCapability.SLIDING_WINDOW)
        if any(layer.soft_cap for layer in self._layers):
            features.add(AttentionCapability.SOFT_CAP)
        if any(layer.sinks for layer in self._layers):
            features.add(AttentionCapability.SINKS)
        return frozenset(features)

    @property
    def weight_bytes(self) -> int:
        # `parameters` gives a tensor that is used twice (tied embeddings) once.
        tensors = itertools.chain(self._model.parameters(), self._model.buffers())
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def set_attention(self, attention: Callable[..., torch.Tensor]) -> None:
        self._attention = attention

    @torch.inference_mode()
    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        logit_rows: torch.Tensor,
        embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        inputs = (
            {"input_ids": token_ids[None]} if embeds is None else {"inputs_embeds": embeds[None]}
        )
        with handling(self._attend):
            output = self._model(
                **inputs,
                position_ids=positions[None],
                use_cache=False,
                logits_to_keep=logit_rows,
            )
        logits: torch.Tensor = output.logits[0]
        return logits.float()

    @torch.inference_mode()
    def forward_with_hidden(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        logit_rows: torch.Tensor,
        hidden_rows: torch.Tensor,
        embeds: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        # The module below the head ends with the final norm. What the head does to its output
        # (scaling, a cap) is the architecture's own, so the whole model runs as it is.
        decoder = self._model.get_decoder()
        seen: list[torch.Tensor] = []
        hook = decoder.register_forward_hook(lambda module, inputs, output: seen.append(output[0]))
        try:
            logits = self.forward(token_ids, positions, logit_rows, embeds)
        finally:
            hook.remove()
        if decoder is self._model or not seen:
            raise UnsupportedFeatureError(
                f"{type(self._model).__name__} does not run its decoder apart from its head, so "
                "there are no hidden states, which pooling requests need"
            )
        return logits, seen[0][0, hidden_rows].float()

    @torch.inference_mode()
    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        embedded: torch.Tensor = self._model.get_input_embeddings()(token_ids)
        return embedded

    def update_weights(self, tensors: Mapping[str, torch.Tensor]) -> int:
        # Here, since it uses much of transformers' inside, and models load without it.
        from builtin_plugins.model_transformers.update import replace_weights

        return replace_weights(self._model, tensors, self._unused_weights)

    def _attend(self, call: AttentionCall) -> torch.Tensor:
        assert self._attention is not None, "set_attention comes before forward"
        return self._attention(
            call.layer,
            call.query[0].transpose(0, 1),
            call.key[0].transpose(0, 1),
            call.value[0].transpose(0, 1),
            scale=call.scale,
            sliding_window=call.sliding_window,
            soft_cap=call.soft_cap,
            sinks=call.sinks,
        )[None]
