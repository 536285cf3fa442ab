"""A decoder of the Llama family whose layers are computed by the kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping

import torch

from builtin_plugins.model_native.architecture import Architecture
from builtin_plugins.model_native.layer import Shape
from builtin_plugins.model_native.rows import checked
from builtin_plugins.model_native.update import replace_weights
from builtin_plugins.model_native.weights import Weights
from builtin_plugins.model_native.workspace import Workspace
from hookspecs.contracts.attention import AttentionCapability
from hookspecs.contracts.model import LoadedModel
from hookspecs.types.kv import KVLayerSpec

__all__ = ["NativeModel"]


class NativeModel(LoadedModel):
    """Worker process; one forward at a time. A row's results do not depend on other rows, apart
    from what the attention does."""

    def __init__(
        self,
        kernels: ctypes.CDLL,
        architecture: Architecture,
        weights: Weights,
        unused_names: frozenset[str],
    ) -> None:
        """`unused_names`: what the checkpoint has and the model has no place for."""
        self._kernels = kernels
        self._architecture = a = architecture
        self._weights = weights
        self._unused_names = unused_names
        self._workspace = Workspace(a, weights)
        self._shape = Shape(
            hidden=a.hidden,
            heads=a.heads,
            kv_heads=a.kv_heads,
            head_size=a.head_size,
            inner=a.inner,
            eps=a.eps,
        )
        self._layers = [ctypes.addressof(layer) for layer in weights.layers]
        self._attention: Callable[..., torch.Tensor] | None = None

    @property
    def layer_specs(self) -> list[KVLayerSpec]:
        a = self._architecture
        return [
            KVLayerSpec(
                layer=layer,
                num_kv_heads=a.kv_heads,
                head_size=a.head_size,
                dtype="float32",
                itemsize=4,
                sliding_window=window,
            )
            for layer, window in enumerate(a.windows)
        ]

    @property
    def attention_features(self) -> frozenset[str]:
        windows = any(window is not None for window in self._architecture.windows)
        return frozenset({AttentionCapability.SLIDING_WINDOW} if windows else ())

    @property
    def weight_bytes(self) -> int:
        return self._weights.num_bytes

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
        states = self._states(token_ids, positions, embeds, logit_rows)
        return self._weights.head.forward(states)

    @torch.inference_mode()
    def forward_with_hidden(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        logit_rows: torch.Tensor,
        hidden_rows: torch.Tensor,
        embeds: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.cat((logit_rows, hidden_rows))
        states = self._states(token_ids, positions, embeds, rows)
        logits = self._weights.head.forward(states[: len(logit_rows)])
        return logits, states[len(logit_rows) :]

    @torch.inference_mode()
    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        embedded = torch.empty(len(token_ids), self._architecture.hidden)
        self._weights.embedding.unpack_rows(token_ids, embedded)
        return embedded

    def update_weights(self, tensors: Mapping[str, torch.Tensor]) -> int:
        return replace_weights(self._weights, self._architecture.name, tensors, self._unused_names)

    def _states(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        embeds: torch.Tensor | None,
        rows: torch.Tensor,
    ) -> torch.Tensor:
        """float32 [len(rows), hidden]: after the final norm, of some of the flattened tokens. What
        the last layer does behind its attention is done for these alone."""
        assert self._attention is not None, "set_attention comes before forward"
        workspace, tokens = self._workspace, len(token_ids)
        rows = checked(self._kernels, rows, tokens)
        workspace.make_room(max(tokens, len(rows)))
        x = workspace.x[:tokens]
        if embeds is None:
            self._weights.embedding.unpack_rows(token_ids, x)
        else:
            x.copy_(embeds)
        self._find_angles(positions.expand(tokens))
        query, key, value = workspace.qkv_views(tokens)
        shape, buffers = ctypes.addressof(self._shape), workspace.address
        before, after = self._kernels.layer_before, self._kernels.layer_after
        scale = self._architecture.head_size**-0.5
        for index, (layer, window) in enumerate(
            zip(self._layers, self._architecture.windows, strict=True)
        ):
            before(layer, shape, buffers, tokens)
            attended = self._attention(
                index,
                query,
                key,
                value,
                scale=scale,
                sliding_window=window,
                soft_cap=None,
                sinks=None,
            )
            if attended.shape != query.shape or attended.dtype != query.dtype:
                raise ValueError(
                    f"attention of layer {index} gave {attended.dtype} {tuple(attended.shape)}; "
                    f"needed is {query.dtype} {tuple(query.shape)}"
                )
            if index == len(self._layers) - 1 and not torch.equal(rows, torch.arange(tokens)):
                attended, tokens = attended[rows], len(rows)
                workspace.x[:tokens] = x[rows]
            attended = attended.contiguous()
            after(layer, shape, buffers, attended.data_ptr(), tokens)
        states = torch.empty(tokens, self._architecture.hidden)
        self._kernels.final_norm(
            shape, buffers, self._weights.final_norm.data_ptr(), tokens, states.data_ptr()
        )
        return states

    def _find_angles(self, positions: torch.Tensor) -> None:
        """Cosines and sines of the step's positions, in the workspace. Not with torch, whose
        threads would go on watching for work while the kernels want the processors."""
        positions, frequencies = positions.long().contiguous(), self._architecture.frequencies
        self._kernels.rope_angles(
            positions.data_ptr(),
            len(positions),
            frequencies.data_ptr(),
            len(frequencies),
            self._architecture.rope_scale,
            self._workspace.cosine.data_ptr(),
            self._workspace.sine.data_ptr(),
        )
