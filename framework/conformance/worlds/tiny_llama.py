"""The tiny model computed by the kit itself: in float64 to know what is right, in any type as a
`LoadedModel` of its own, which needs no library of models."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import torch
from msgspec import Meta
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch.nn.functional import silu

from framework.conformance.worlds.dense_attention import DenseAttention
from hookspecs import PluginInfo, Provider, hookimpl
from hookspecs.contracts.attention import AttentionCapability
from hookspecs.contracts.model import LoadedModel, ModelLoader, ResolvedModel
from hookspecs.errors import InvalidRequestError, UnsupportedModelError
from hookspecs.types.kv import KVLayerSpec

__all__ = ["TinyLlama", "TinyLoader", "TinyModels", "Traits", "last_logits", "logits_of"]

_DTYPES = {torch.bfloat16: AttentionCapability.BFLOAT16, torch.float16: AttentionCapability.FLOAT16}


class Traits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a model asks of attention; of the kit's own models."""

    sliding_window: Annotated[int | None, Meta(description="Tokens that a token sees.")] = None
    soft_cap: Annotated[float | None, Meta(description="Bound of the scores.")] = None
    sinks: Annotated[bool, Meta(description="A sink for each head.")] = False


class TinyLlama(LoadedModel):
    """Llama as its authors define it (Touvron et al., 2023), in the layout of Hugging Face."""

    def __init__(
        self, config: Mapping[str, Any], weights: Mapping[str, torch.Tensor], traits: Traits
    ) -> None:
        self.config = config
        self.weights = dict(weights)
        self.traits = traits
        self.dtype = weights["lm_head.weight"].dtype
        self.attention: Callable[..., torch.Tensor] | None = None

    @property
    def layer_specs(self) -> list[KVLayerSpec]:
        return [
            KVLayerSpec(
                layer=layer,
                num_kv_heads=self.config["num_key_value_heads"],
                head_size=self.config["head_dim"],
                dtype=str(self.dtype).removeprefix("torch."),
                itemsize=self.dtype.itemsize,
                sliding_window=self.traits.sliding_window,
            )
            for layer in range(self.config["num_hidden_layers"])
        ]

    @property
    def attention_features(self) -> frozenset[str]:
        needs: dict[str, object] = {
            AttentionCapability.SLIDING_WINDOW: self.traits.sliding_window,
            AttentionCapability.SOFT_CAP: self.traits.soft_cap,
            AttentionCapability.SINKS: self.traits.sinks,
        }
        types = {_DTYPES[self.dtype]} if self.dtype in _DTYPES else set()
        return frozenset({name for name, needed in needs.items() if needed} | types)

    @property
    def weight_bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.weights.values())

    def set_attention(self, attention: Callable[..., torch.Tensor]) -> None:
        self.attention = attention

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        logit_rows: torch.Tensor,
        embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        hidden = self._hidden(token_ids, positions, embeds)
        return self._head(hidden[logit_rows])

    def forward_with_hidden(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        logit_rows: torch.Tensor,
        hidden_rows: torch.Tensor,
        embeds: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self._hidden(token_ids, positions, embeds)
        return self._head(hidden[logit_rows]), self._given(hidden[hidden_rows])

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        return self.weights["model.embed_tokens.weight"][token_ids]

    def update_weights(self, tensors: Mapping[str, torch.Tensor]) -> int:
        for name, tensor in tensors.items():
            own = self.weights.get(name)
            if own is None or own.shape != tensor.shape or not tensor.is_floating_point():
                raise InvalidRequestError(f"{name!r} does not fit; nothing was replaced")
        for name, tensor in tensors.items():
            self.weights[name].copy_(tensor)
        return len(tensors)

    def _head(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._given(hidden @ self.weights["lm_head.weight"].T)

    def _given(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if tensor.dtype is torch.float64 else tensor.float()

    def _hidden(
        self, token_ids: torch.Tensor, positions: torch.Tensor, embeds: torch.Tensor | None
    ) -> torch.Tensor:
        x = self.embed(token_ids) if embeds is None else embeds
        for layer in range(self.config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            normed = self._norm(x, f"{prefix}input_layernorm")
            x = x + self._attend(normed, positions, layer, f"{prefix}self_attn.")
            normed = self._norm(x, f"{prefix}post_attention_layernorm")
            gate = silu(self._linear(normed, f"{prefix}mlp.gate_proj"))
            inner = gate * self._linear(normed, f"{prefix}mlp.up_proj")
            x = x + self._linear(inner, f"{prefix}mlp.down_proj")
        return self._norm(x, "model.norm")

    def _attend(
        self, x: torch.Tensor, positions: torch.Tensor, layer: int, prefix: str
    ) -> torch.Tensor:
        assert self.attention is not None, "set_attention comes before forward"
        size = self.config["head_dim"]
        query, key, value = (
            self._linear(x, f"{prefix}{name}_proj").view(len(x), -1, size) for name in "qkv"
        )
        sinks = torch.linspace(-1, 1, query.shape[1]).to(x) if self.traits.sinks else None
        out = self.attention(
            layer,
            self._rotate(query, positions),
            self._rotate(key, positions),
            value,
            scale=size**-0.5,
            sliding_window=self.traits.sliding_window,
            soft_cap=self.traits.soft_cap,
            sinks=sinks,
        )
        return self._linear(out.reshape(len(x), -1), f"{prefix}o_proj")

    def _rotate(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Rotary position embedding (Su et al., "RoFormer", 2021), halves of a head as pairs."""
        half = self.config["head_dim"] // 2
        powers = torch.arange(half, dtype=torch.float64) / half
        frequencies = (self.config["rope_theta"] ** -powers).to(x.device)
        angles = positions.double()[:, None] * frequencies
        cos, sin = angles.cos().to(x)[:, None], angles.sin().to(x)[:, None]
        left, right = x[..., :half], x[..., half:]
        return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ self.weights[f"{name}.weight"].T

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        wide = x.double() if x.dtype is torch.float64 else x.float()
        wide = wide * torch.rsqrt(
            wide.square().mean(-1, keepdim=True) + self.config["rms_norm_eps"]
        )
        return self.weights[f"{name}.weight"] * wide.to(x)


def logits_of(
    config: Mapping[str, Any],
    weights: Mapping[str, torch.Tensor],
    tokens: Sequence[int],
    traits: Traits | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and last hidden states of a whole row, float64 [tokens, vocab] and [tokens, hidden
    size], without a cache."""
    wide = {name: tensor.double() for name, tensor in weights.items()}
    model = TinyLlama(config, wide, traits or Traits(sliding_window=config.get("sliding_window")))
    attention = DenseAttention()
    model.set_attention(attention)
    attention.begin([("row", len(tokens))])
    every = torch.arange(len(tokens))
    return model.forward_with_hidden(torch.tensor(tokens), every, every, every)


def last_logits(
    config: Mapping[str, Any],
    weights: Mapping[str, torch.Tensor],
    prompt: Sequence[int],
    output: Sequence[int],
    traits: Traits,
) -> torch.Tensor:
    """float64 [output tokens, vocab]: what each token of an output was chosen from."""
    logits, _ = logits_of(config, weights, [*prompt, *output], traits)
    return logits[len(prompt) - 1 : -1]


class TinyLoader(ModelLoader):
    """Loads tiny models, with the traits that its options give."""

    def load(self, model: ResolvedModel, *, dtype: str, device: str) -> TinyLlama:
        config, tensors = self._read(Path(model.path or ""))
        self.context.progress("loading weights", 0.0)
        wanted = getattr(torch, dtype)
        weights = {name: tensor.to(device, wanted) for name, tensor in tensors.items()}
        self.context.progress("loading weights", 1.0)
        traits = self.context.options or Traits(sliding_window=config.get("sliding_window"))
        return TinyLlama(config, weights, traits)

    def _read(self, path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        try:
            config = json.loads((path / "config.json").read_text(encoding="utf-8"))
            tensors = load_file(path / "model.safetensors")
        except (OSError, ValueError, SafetensorError) as error:
            raise UnsupportedModelError(f"{path} can not be read: {error}") from error
        if config["model_type"] not in ("llama", "mistral"):
            raise UnsupportedModelError(
                f"architecture {config['architectures'][0]} is not one of the kit's"
            )
        missing = {"lm_head.weight", "model.norm.weight"} - tensors.keys()
        if missing:
            raise UnsupportedModelError(f"{path} lacks {sorted(missing)[0]!r}")
        return config, tensors


class TinyModels:
    """A plugin with the loader `conformance-tiny`, whose options are the traits of its models."""

    PLUGIN = PluginInfo(name="conformance-tiny", api=">=1.0,<2")

    @hookimpl
    def register_model_loaders(self) -> Iterable[Provider[ModelLoader]]:
        """See EngineHooks."""
        yield Provider("conformance-tiny", f"{__name__}:TinyLoader", options=Traits)
