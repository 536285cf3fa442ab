"""Broken model loaders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import torch

from framework.conformance.worlds.tiny_llama import TinyLlama, TinyLoader
from hookspecs import PluginInfo, Provider, hookimpl
from hookspecs.contracts.model import (
    LoaderCapability,
    ModelLoader,
    ModelLoaderContext,
    ResolvedModel,
)
from hookspecs.errors import UnsupportedModelError
from hookspecs.events import ConfigResolved
from hookspecs.types.kv import KVLayerSpec
from tests.conformance.mutants.mutant import Mutant, providing

__all__ = ["MUTANTS"]


class Mixed(TinyLlama):
    """Tokens of a batch influence each other."""

    def _head(self, hidden: torch.Tensor) -> torch.Tensor:
        logits = super()._head(hidden)
        return logits + 0.1 * logits.mean(0, keepdim=True)


class CountsPlaces(TinyLlama):
    """The place in the batch is the position."""

    def _rotate(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return super()._rotate(x, torch.arange(len(positions)))


class SortsRows(TinyLlama):
    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        logit_rows: torch.Tensor,
        embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        return super().forward(token_ids, positions, logit_rows.sort().values, embeds)


class IgnoresEmbeds(TinyLlama):
    def _hidden(
        self, token_ids: torch.Tensor, positions: torch.Tensor, embeds: torch.Tensor | None
    ) -> torch.Tensor:
        return super()._hidden(token_ids, positions, None)


class StatesBeforeTheNorm(TinyLlama):
    def forward_with_hidden(self, *args: Any, **more: Any) -> tuple[torch.Tensor, torch.Tensor]:
        logits, hidden = super().forward_with_hidden(*args, **more)
        return logits, hidden * 1.5


class ChangesIds(TinyLlama):
    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        logit_rows: torch.Tensor,
        embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        token_ids[token_ids == 0] = 3
        return super().forward(token_ids, positions, logit_rows, embeds)


class NumbersLayersBackwards(TinyLlama):
    def _attend(
        self, x: torch.Tensor, positions: torch.Tensor, layer: int, prefix: str
    ) -> torch.Tensor:
        return super()._attend(x, positions, 1 - layer, prefix)


class CountsNumbers(TinyLlama):
    @property
    def weight_bytes(self) -> int:
        return sum(tensor.numel() for tensor in self.weights.values())


class NeedsEverything(TinyLlama):
    @property
    def attention_features(self) -> frozenset[str]:
        return frozenset({"sliding_window", "sinks"})


class HidesItsWindow(TinyLlama):
    @property
    def layer_specs(self) -> list[KVLayerSpec]:
        return [msgspec.structs.replace(spec, sliding_window=None) for spec in super().layer_specs]


class OneAttentionForAll(TinyLlama):
    """The attention of the model that was made last."""

    shared: ClassVar[dict[str, Callable[..., torch.Tensor]]] = {}

    def set_attention(self, attention: Callable[..., torch.Tensor]) -> None:
        self.shared["attention"] = attention

    def _attend(self, *args: Any) -> torch.Tensor:
        self.attention = self.shared["attention"]
        return super()._attend(*args)


class ReplacesTheFirst(TinyLlama):
    def update_weights(self, tensors: Mapping[str, torch.Tensor]) -> int:
        return super().update_weights(dict(list(tensors.items())[:1]))


class ReplacesHalf(TinyLlama):
    """Half an update stays when the other half does not fit."""

    def update_weights(self, tensors: Mapping[str, torch.Tensor]) -> int:
        return sum(super(ReplacesHalf, self).update_weights({n: t}) for n, t in tensors.items())


class Makes(TinyLoader):
    """Models of a class."""

    model: ClassVar[type[TinyLlama]] = TinyLlama

    def load(self, model: ResolvedModel, *, dtype: str, device: str) -> TinyLlama:
        right = super().load(model, dtype=dtype, device=device)
        return self.model(right.config, right.weights, right.traits)


class IgnoresTheType(TinyLoader):
    def load(self, model: ResolvedModel, *, dtype: str, device: str) -> TinyLlama:
        return super().load(model, dtype="float32", device=device)


class TellsPercent(TinyLoader):
    def __init__(self, context: ModelLoaderContext) -> None:
        told = context.progress
        changed = msgspec.structs.replace(context, progress=lambda w, part: told(w, 100 * part))
        super().__init__(changed)


class TakesAnything(TinyLoader):
    """Whatever the architecture is, it is read as a Llama."""

    def _read(self, path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        try:
            return super()._read(path)
        except UnsupportedModelError:
            text = (path / "config.json").read_text().replace("no_such", "llama")
            (path / "config.json").write_text(text)
            return super()._read(path)


class MakesWeightsUp(TinyLoader):
    def _read(self, path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        try:
            return super()._read(path)
        except UnsupportedModelError:
            return {"model_type": "llama"}, {"lm_head.weight": torch.zeros(1)}


class CachesWeights(TinyLoader):
    """All models that it loads are one."""

    cached: ClassVar[dict[str, Any]] = {}

    def load(self, model: ResolvedModel, *, dtype: str, device: str) -> TinyLlama:
        key = f"{model.path} {dtype}"
        right = super().load(model, dtype=dtype, device=device)
        right.weights = self.cached.setdefault(key, right.weights)
        return right


class QuantizesNothing(TinyLoader):
    capabilities = frozenset({LoaderCapability.QUANTIZATION})


class DropsWhatItCanNotDo:
    """Ignores a capability: takes the request for it out of the configuration."""

    PLUGIN = PluginInfo(name="mutant", api=">=1.0,<2")

    @hookimpl
    def register_model_loaders(self) -> Iterable[Provider[ModelLoader]]:
        yield Provider("mutant", f"{TinyLoader.__module__}:TinyLoader")

    @hookimpl
    def adjust_config(self, event: ConfigResolved) -> ConfigResolved | None:
        config = event.config
        changed = msgspec.structs.replace(
            config,
            model=msgspec.structs.replace(config.model, quantization=None),
            executor=msgspec.structs.replace(config.executor, tensor_parallel_size=1),
        )
        return msgspec.structs.replace(event, config=changed)


def _loading(model: type[TinyLlama]) -> type[ModelLoader]:
    """A loader of such models, under a name of this module."""
    name = f"Loads{model.__name__}"
    loader = type(name, (Makes,), {"model": model, "__module__": __name__})
    globals()[name] = loader
    return loader


def _mutant(fault: str, part: type[Any], *caught_by: str) -> Mutant:
    loader = _loading(part) if issubclass(part, TinyLlama) else part
    return Mutant("model_loader", fault, providing("model_loader", loader), caught_by)


MUTANTS = [
    _mutant("rows mix", Mixed, "test_a_flattened_batch"),
    _mutant(
        "places as positions",
        CountsPlaces,
        "test_chunks_and_decodes",
        "test_tokens_of_an_engine",
    ),
    _mutant("wrong order of logit_rows", SortsRows, "test_logits_in_the_order_asked"),
    _mutant("ignores embeds", IgnoresEmbeds, "test_embeds_replace_tokens"),
    _mutant("other hidden states", StatesBeforeTheNorm, "test_hidden_states"),
    _mutant("changes token ids", ChangesIds, "test_arguments_are_left_alone"),
    _mutant("layers backwards", NumbersLayersBackwards, "test_attention_is_called_once_a_layer"),
    _mutant("counts numbers as bytes", CountsNumbers, "test_what_it_says_of_the_model"),
    _mutant("ignores the type", IgnoresTheType, "test_the_type_is_honoured"),
    _mutant("needs what it does not use", NeedsEverything, "test_features_are_those_it_uses"),
    _mutant("does not state its window", HidesItsWindow, "test_a_sliding_window"),
    _mutant("progress in percent", TellsPercent, "test_progress"),
    _mutant("models share attention", OneAttentionForAll, "test_loading_twice"),
    _mutant("takes any architecture", TakesAnything, "test_an_unknown_architecture_is_refused"),
    _mutant("makes weights up", MakesWeightsUp, "test_an_incomplete_checkpoint_is_refused"),
    _mutant("replaces the first only", ReplacesTheFirst, "test_weights_are_replaced"),
    _mutant("models share weights", CachesWeights, "test_weights_are_replaced"),
    _mutant("half an update", ReplacesHalf, "test_what_does_not_fit_replaces_nothing"),
    _mutant("quantizes nothing", QuantizesNothing, "test_an_unknown_quantization_is_refused"),
    Mutant(
        "model_loader",
        "drops what it can not do",
        DropsWhatItCanNotDo(),
        ("test_undeclared_quantization_is_refused", "test_undeclared_tensor_parallel_is_refused"),
    ),
]
