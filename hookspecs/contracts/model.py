"""Model sources find a model's files; model loaders make a module of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from hookspecs.contracts.base import Context
from hookspecs.errors import UnsupportedFeatureError
from hookspecs.types.kv import KVLayerSpec

if TYPE_CHECKING:
    import torch

__all__ = [
    "LoadedModel",
    "LoaderCapability",
    "ModelInfo",
    "ModelLoader",
    "ModelLoaderContext",
    "ModelSource",
    "ModelSourceContext",
    "ResolvedModel",
]


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel and front end need to know of a model before its weights are loaded."""

    architecture: str
    """Class name, e.g. `LlamaForCausalLM`."""
    vocab_size: int
    """Width of the logits."""
    max_model_len: int
    """Tokens of prompt and output that the model was made for."""
    eos_token_ids: tuple[int, ...] = ()
    """The primary end token first."""
    bos_token_id: int | None = None
    hidden_size: int = 0
    dtype: str = "float32"
    """Of the checkpoint."""
    generation_defaults: dict[str, Any] = {}
    """Sampling defaults that the model's authors recommend, by SamplingParams field."""
    has_tokenizer: bool = True
    """Whether `ResolvedModel.tokenizer_path` names one: both must say the same."""


class ResolvedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model name turned into files."""

    name: str
    """As configured."""
    path: str | None
    """Directory in Hugging Face layout (config.json, *.safetensors), which is what built-in
    workers and loaders read; of a source with a worker of its own any directory that both agree
    on. None when the worker needs none."""
    tokenizer_path: str | None
    """Local directory with tokenizer.json; None when there is none. A source reads
    `model.tokenizer` for it, which may name another directory or hub repository, or be `none`."""
    info: ModelInfo


class ModelSourceContext(Context, frozen=True, kw_only=True):
    """Context of a model source."""

    progress: Callable[[str, float], None] = lambda what, fraction: None
    """(what is being done, 0 to 1) for long work: download, conversion."""


class ModelSource(ABC):
    """Launcher and front-end processes."""

    def __init__(self, context: ModelSourceContext) -> None:
        self.context = context

    @abstractmethod
    def matches(self, name: str) -> bool:
        """Whether `name`, which may be any text, is this source's to resolve. Milliseconds, no
        network."""

    @abstractmethod
    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        """Find, download or convert the files; the same each time. Several processes and threads
        may ask at once. ModelNotFoundError, also for a revision that there is not, and for any
        where models have none; UnsupportedModelError."""


class LoaderCapability(StrEnum):
    """What a model loader can do."""

    TENSOR_PARALLEL = "tensor_parallel"
    QUANTIZATION = "quantization"


class ModelLoaderContext(Context, frozen=True, kw_only=True):
    """Context of a model loader."""

    progress: Callable[[str, float], None] = lambda what, fraction: None
    """(what is being done, 0 to 1) while weights are read."""


class LoadedModel(ABC):
    """A model whose attention goes through a paged cache.

    `set_attention` is called once before the first forward.
    """

    @property
    @abstractmethod
    def layer_specs(self) -> list[KVLayerSpec]:
        """Its attention layers, in order."""

    @property
    @abstractmethod
    def attention_features(self) -> frozenset[str]:
        """AttentionCapability values that it needs."""

    @property
    @abstractmethod
    def weight_bytes(self) -> int:
        """Bytes of all parameters and buffers."""

    @abstractmethod
    def set_attention(self, attention: Callable[..., torch.Tensor]) -> None:
        """`attention(layer, query, key, value, *, scale, sliding_window, soft_cap, sinks)` with
        query [tokens, heads, head size], key and value [tokens, kv heads, head size], returns
        [tokens, heads, head size]."""

    @abstractmethod
    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        logit_rows: torch.Tensor,
        embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """One flattened batch: token_ids, positions int64 [tokens]; logits float32
        [len(logit_rows), vocab] of the flattened tokens at int64 `logit_rows`. With `embeds`
        [tokens, hidden size] these replace the embedding of token_ids."""

    def forward_with_hidden(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        logit_rows: torch.Tensor,
        hidden_rows: torch.Tensor,
        embeds: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`forward`, with the last hidden states (after the final norm, before the lm head) of
        the flattened tokens at int64 `hidden_rows`: logits, and float32 [len(hidden_rows),
        hidden size]. UnsupportedFeatureError if the model can not give them; the batch can then
        go through `forward`."""
        raise UnsupportedFeatureError(
            f"{type(self).__name__} does not give hidden states, which pooling requests need"
        )

    @abstractmethod
    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Input embeddings [tokens, hidden size], as `forward` would take them."""

    def update_weights(self, tensors: Mapping[str, torch.Tensor]) -> int:
        """Copy tensors (on the host, of any floating-point type) into parameters, which stay the
        same objects, by the names of checkpoints; returns how many parameters changed.
        InvalidRequestError for a name, shape or dtype that does not fit: then nothing is
        replaced."""
        raise UnsupportedFeatureError(f"{type(self).__name__} does not replace weights in place")


class ModelLoader(ABC):
    """Worker process."""

    capabilities: ClassVar[frozenset[LoaderCapability]] = frozenset()

    def __init__(self, context: ModelLoaderContext) -> None:
        self.context = context

    @classmethod
    def rate(
        cls, model: ResolvedModel, *, dtype: str, device: str, quantization: str | None
    ) -> int:
        """How well it would serve this model, for `model.loader = "auto"`: the highest wins, 0 or
        less never does; UnsupportedModelError is 0 with the reason, which the user is told.
        `device` is "" where the worker does not say it. Asked of built-in loaders, and of others
        whose plugin is named in `plugins.enable` or was given to `launch`. Cheap: reads no
        weights, and does not import what only `load` needs."""
        return 0

    @abstractmethod
    def load(self, model: ResolvedModel, *, dtype: str, device: str) -> LoadedModel:
        """Load the weights as torch dtype name `dtype` on `device`. UnsupportedModelError."""
