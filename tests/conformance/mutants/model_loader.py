"""Broken model loaders."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import torch
from safetensors.torch import load_file

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


class RefusesShortTypes(TinyLoader):
    """Says neither why, nor what it refuses."""

    def load(self, model: ResolvedModel, *, dtype: str, device: str) -> TinyLlama:
        if dtype != "float32":
            raise UnsupportedModelError("it can not")
        return super().load(model, dtype=dtype, device=device)


class ScalesShortTypes(TinyLoader):
    """Its weights of the shorter types are finite, but others."""

    def load(self, model: ResolvedModel, *, dtype: str, device: str) -> TinyLlama:
        right = super().load(model, dtype=dtype, device=device)
        if dtype != "float32":
            right.weights["lm_head.weight"] *= 2
        return right


# Rates


class Rated(TinyLoader):
    """Rates what it reads, by the configuration alone."""

    @classmethod
    def rate(
        cls, model: ResolvedModel, *, dtype: str, device: str, quantization: str | None
    ) -> int:
        if model.path is None or quantization is not None:
            raise UnsupportedModelError("it reads files, and does not quantize")
        path = Path(model.path) / "config.json"
        if not path.is_file() or b'"llama"' not in path.read_bytes():
            raise UnsupportedModelError("it reads Llama only")
        return cls.rated(path.parent)

    @classmethod
    def rated(cls, directory: Path) -> int:
        """A model of its own."""
        return 30


class RatesInHalves(Rated):
    @classmethod
    def rated(cls, directory: Path) -> int:
        return 0.5  # type: ignore[return-value]


class RatesByTurns(Rated):
    """Falls in its own esteem."""

    times: ClassVar[list[Path]] = []

    @classmethod
    def rated(cls, directory: Path) -> int:
        cls.times.append(directory)
        return 1000 - len(cls.times)


class SaysNoReason(Rated):
    @classmethod
    def rated(cls, directory: Path) -> int:
        raise UnsupportedModelError


class LoadsToRate(Rated):
    @classmethod
    def rated(cls, directory: Path) -> int:
        return len(load_file(directory / "model.safetensors"))


class ReadsToRate(Rated):
    """Reads the file with the weights, though not as weights."""

    @classmethod
    def rated(cls, directory: Path) -> int:
        return 1 + len((directory / "model.safetensors").read_bytes()) % 7


class PondersToRate(Rated):
    @classmethod
    def rated(cls, directory: Path) -> int:
        total = 0
        for number in range(30_000):
            total += number
        return total


class NotesItsRate(Rated):
    """Leaves its rating in the directory of the model."""

    @classmethod
    def rated(cls, directory: Path) -> int:
        (directory / "rating.json").write_text("30")
        return 30


class RatesInTheBackground(Rated):
    @classmethod
    def rated(cls, directory: Path) -> int:
        threading.Thread(target=threading.Event().wait, args=(10,), daemon=True).start()
        return 30


class RatesTypesThatItRefuses(Rated):
    def load(self, model: ResolvedModel, *, dtype: str, device: str) -> TinyLlama:
        if dtype == "float16":
            raise UnsupportedModelError("float16 is not for this loader")
        return super().load(model, dtype=dtype, device=device)


class RatesDevicesThatItRefuses(Rated):
    def load(self, model: ResolvedModel, *, dtype: str, device: str) -> TinyLlama:
        if device == "cpu":
            raise UnsupportedModelError("the host is not for this loader")
        return super().load(model, dtype=dtype, device=device)


class RatesQuantizationsThatItRefuses(Rated):
    capabilities = frozenset({LoaderCapability.QUANTIZATION})

    @classmethod
    def rate(
        cls, model: ResolvedModel, *, dtype: str, device: str, quantization: str | None
    ) -> int:
        return super().rate(model, dtype=dtype, device=device, quantization=None)

    def load(self, model: ResolvedModel, *, dtype: str, device: str) -> TinyLlama:
        quantization = self.context.config.model.quantization
        if quantization not in (None, "int8"):
            raise UnsupportedModelError(f"there is no quantization {quantization!r}")
        return super().load(model, dtype=dtype, device=device)


class ExpectsFiles(Rated):
    @classmethod
    def rate(
        cls, model: ResolvedModel, *, dtype: str, device: str, quantization: str | None
    ) -> int:
        config = Path(str(model.path)) / "config.json"
        return 30 if json.loads(config.read_text())["model_type"] == "llama" else 0


class LooksTypesUp(Rated):
    @classmethod
    def rate(
        cls, model: ResolvedModel, *, dtype: str, device: str, quantization: str | None
    ) -> int:
        rating = super().rate(model, dtype=dtype, device=device, quantization=quantization)
        return rating * int(getattr(torch, dtype).itemsize > 0)


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
    _mutant("refuses types without a word", RefusesShortTypes, "test_the_type_is_honoured"),
    _mutant("other weights of short types", ScalesShortTypes, "test_the_type_is_honoured"),
    _mutant("rates in halves", RatesInHalves, "test_its_rate_is_cheap"),
    _mutant("rates by turns", RatesByTurns, "test_its_rate_is_cheap"),
    _mutant("says no reason", SaysNoReason, "test_its_rate_is_cheap"),
    _mutant("loads to rate", LoadsToRate, "test_its_rate_is_cheap"),
    _mutant("reads weights to rate", ReadsToRate, "test_its_rate_is_cheap"),
    _mutant("ponders to rate", PondersToRate, "test_its_rate_is_cheap"),
    _mutant("notes its rate", NotesItsRate, "test_its_rate_is_cheap"),
    _mutant("rates in the background", RatesInTheBackground, "test_its_rate_is_cheap"),
    _mutant("rates types that it refuses", RatesTypesThatItRefuses, "test_it_loads_what_it_rates"),
    _mutant(
        "rates devices that it refuses", RatesDevicesThatItRefuses, "test_it_loads_what_it_rates"
    ),
    _mutant(
        "rates quantizations that it refuses",
        RatesQuantizationsThatItRefuses,
        "test_it_loads_the_quantizations_that_it_rates",
    ),
    _mutant("expects files", ExpectsFiles, "test_whatever_it_is_asked_it_answers"),
    _mutant("looks types up", LooksTypesUp, "test_whatever_it_is_asked_it_answers"),
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
