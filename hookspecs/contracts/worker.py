"""Worker: owns one device. Model runner: turns a step's decision into tokens on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, TypeVar

from hookspecs.contracts.attention import AttentionBackend
from hookspecs.contracts.base import Context
from hookspecs.contracts.logits import LogitsProcessor, Sampler, SamplerContext
from hookspecs.contracts.model import ModelLoader, ResolvedModel
from hookspecs.errors import UnsupportedFeatureError
from hookspecs.types.kv import KVCacheConfig, KVLayerSpec
from hookspecs.types.step import (
    GrammarOutput,
    ModelRunnerOutput,
    NewRequest,
    SchedulerOutput,
)

__all__ = ["ModelRunner", "Worker", "WorkerCapability", "WorkerContext", "command"]

F = TypeVar("F", bound=Callable[..., Any])


def command(function: F) -> F:
    """Mark a worker's method as callable by `Executor.collective_rpc` under its name.
    Arguments and result must be msgspec-encodable."""
    function.__worker_command__ = True  # type: ignore[attr-defined]
    return function


class WorkerCapability(StrEnum):
    """What a worker can do."""

    ASYNC_STEPPING = "async_stepping"
    PROMPT_EMBEDS = "prompt_embeds"
    PROMPT_LOGPROBS = "prompt_logprobs"
    LOGITS_PROCESSORS = "logits_processors"
    """Applies those that `create_logits_processors` gives."""
    GRAMMAR = "grammar"
    """Applies token bitmasks."""
    DRAFT_TOKENS = "draft_tokens"
    ADAPTERS = "adapters"
    SLIDING_WINDOW = "sliding_window"
    POOLING = "pooling"
    """Gives the vectors of pooling requests."""
    SLEEP = "sleep"
    """Gives memory back and takes it again."""
    UPDATE_WEIGHTS = "update_weights"
    PROFILE = "profile"
    TENSOR_PARALLEL = "tensor_parallel"


class WorkerContext(Context, frozen=True, kw_only=True):
    """Context of a worker. The callables construct the other selected providers here, where
    the worker runs."""

    model: ResolvedModel
    max_model_len: int
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    create_loader: Callable[..., ModelLoader]
    """The configured model loader; with `auto` the one that rates the model highest for the
    keywords `dtype` and `device`, both as its `load` takes them. Left out they are the
    checkpoint's type and no device in particular."""
    create_sampler: Callable[[SamplerContext], Sampler]
    """The configured sampler. Vocabulary size, max_num_seqs and device are the worker's to say;
    options, plugin and name are filled in for it. Samplers take torch tensors: a worker without
    torch samples by itself, see `Worker`."""
    create_attention: Callable[[str, str], AttentionBackend]
    """(provider name, device): the configured backend, or for `auto` the worker's choice."""
    create_logits_processors: Callable[[NewRequest, int], Sequence[LogitsProcessor]] = (
        lambda request, vocab_size: ()
    )
    """(request, vocabulary size): the processors that the request asks for, by the names in its
    `sampling_params.extensions`; constructed, not yet started. RequestError when one can not be
    had: RequestFailedError, with the plugin, for a failure of it; InvalidRequestError when it
    refuses the request."""
    report: Callable[[str], None] = lambda line: None
    """A line for the start-up log (the memory ledger)."""


class ModelRunner(ABC):
    """The part of a worker that a step goes through."""

    @abstractmethod
    def execute_model(self, scheduled: SchedulerOutput) -> None:
        """Update the persistent batch and run the forward; keeps logits until sampled.

        Applies in order: released_slots, new_requests, new_blocks, rows.
        """

    @abstractmethod
    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        """Sample for the rows of the forward before, and append the tokens to the batch."""


class Worker(ABC):
    """One device. Worker process (the core's own with an in-process executor), one thread.

    Called in the order init_device, load_model, kv_layer_specs, available_kv_bytes,
    initialize_kv_cache, then steps, then shutdown.

    One that samples by itself, without `create_sampler`, follows these SamplingParams:
    temperature, top_p, top_k, min_p, seed, the three penalties, logit_bias, allowed_token_ids,
    bad_words_token_ids, min_tokens (no end token before: `NewRequest.eos_token_id` and
    stop_token_ids) and logprobs. All others are the front end's and the kernel's, or need a
    capability. Nothing is dropped silently: a request that sets one which the worker does not
    follow ends with a RowFailure that names it, in the first step of the request. There is no
    earlier way to refuse it.
    """

    capabilities: ClassVar[frozenset[WorkerCapability]] = frozenset()

    def __init__(self, context: WorkerContext) -> None:
        self.context = context

    @classmethod
    def rate(cls) -> int:
        """How well this machine suits it, for `executor.worker = "auto"`: the highest wins,
        0 or less never does. Asked of built-in workers, and of others whose plugin is named in
        `plugins.enable` or was given to `launch`. Cheap: must not initialize the device."""
        return 0

    @property
    def prefill_beside_decode(self) -> int | None:
        """Tokens of prompts, 1 or more, that a step of a few decoding requests can take in at
        most, so that it lasts about twice as long; None: it hardly matters, or is not known. See
        `SchedulerContext`. Read after `load_model`."""
        return None

    @abstractmethod
    def init_device(self) -> None:
        """Choose and prepare the device."""

    @abstractmethod
    def load_model(self) -> None:
        """Load this rank's weights. UnsupportedModelError for an architecture it can't run."""

    @abstractmethod
    def kv_layer_specs(self) -> list[KVLayerSpec]:
        """What each attention layer of this rank keeps; at least one. A worker that keeps none
        describes a layer of a few bytes, since blocks bound the tokens in the engine too."""

    @abstractmethod
    def available_kv_bytes(self) -> int:
        """Bytes that may be given to the KV cache: `cache.kv_bytes`, or the default share."""

    @abstractmethod
    def initialize_kv_cache(self, kv_config: KVCacheConfig) -> None:
        """Allocate the cache and warm up."""

    @abstractmethod
    def execute_model(self, scheduled: SchedulerOutput) -> None:
        """See ModelRunner."""

    @abstractmethod
    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        """See ModelRunner."""

    @property
    @abstractmethod
    def device(self) -> str:
        """Name of the device, e.g. `cpu` or `cuda:0`."""

    def shutdown(self) -> None:
        """Give everything back; safe to call twice, and at any point of the start."""

    @command
    def sleep(self, level: int) -> None:
        """Give memory back, between steps: 1 keeps the weights in host memory and drops the KV
        cache, 2 drops both. A level below the present one changes nothing."""
        raise self._lacking(WorkerCapability.SLEEP)

    @command
    def wake_up(self, tags: Sequence[str]) -> None:
        """Take back what `tags` name (`weights`, `kv_cache`) and is asleep. The cache comes back
        empty; weights come back as they were (level 1) or as in the model's files (level 2)."""
        raise self._lacking(WorkerCapability.SLEEP)

    @command
    def update_weights(self, path: str | None, tensors: Mapping[str, Any] | None) -> int:
        """Replace parameters in place, from safetensors files or from arrays or tensors by
        checkpoint name; exactly one is given. Returns how many. InvalidRequestError for a name,
        shape or dtype that does not fit, CommandError while they can not be replaced: then
        nothing was. After any other error the engine stops, since it may hold a mixture."""
        raise self._lacking(WorkerCapability.UPDATE_WEIGHTS)

    @command
    def list_adapters(self) -> list[str]:
        """Names of the loaded adapters."""
        raise self._lacking(WorkerCapability.ADAPTERS)

    @command
    def load_adapter(self, name: str, path: str) -> None:
        """Load a fine-tuned adapter from a directory. InvalidRequestError when it does not fit."""
        raise self._lacking(WorkerCapability.ADAPTERS)

    @command
    def unload_adapter(self, name: str) -> None:
        """Forget an adapter. InvalidRequestError for a name that is not loaded."""
        raise self._lacking(WorkerCapability.ADAPTERS)

    @command
    def start_profile(self, directory: str) -> None:
        """Record what is computed from now on."""
        raise self._lacking(WorkerCapability.PROFILE)

    @command
    def stop_profile(self) -> str:
        """Write what was recorded; returns the path of the trace."""
        raise self._lacking(WorkerCapability.PROFILE)

    def _lacking(self, capability: WorkerCapability) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(
            f"the worker {self.context.name!r} does not declare {capability}"
        )

    def commands(self) -> dict[str, Callable[..., Any]]:
        """The methods marked with the decorator `command` of this contract's module, by name;
        their arguments and results must be encodable by msgspec."""
        members = ((name, getattr(type(self), name, None)) for name in dir(type(self)))
        marked = [name for name, member in members if hasattr(member, "__worker_command__")]
        return {name: getattr(self, name) for name in marked}
