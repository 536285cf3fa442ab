"""`EngineConfig`: the tree of settings that every plugin and process receives.

Frozen structs with described and bounded fields. Where values come from, and the check of
plugin options, is `framework.config`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

__all__ = [
    "CacheConfig",
    "Dtype",
    "EngineConfig",
    "EngineSection",
    "ExecutorConfig",
    "KVTransferConfig",
    "ModelConfig",
    "ParallelConfig",
    "PluginsConfig",
    "SchedulerConfig",
    "ServingConfig",
    "StatsConfig",
]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all sections."""


class Dtype(StrEnum):
    """Data types of weights and activations."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class Switch(StrEnum):
    """A feature that is on where every selected plugin can do it (auto), or as told."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class EngineProcess(StrEnum):
    """Where the engine core runs."""

    AUTO = "auto"
    IN_PROCESS = "in_process"
    SEPARATE = "separate"


class Transport(StrEnum):
    """How messages travel between processes."""

    IPC = "ipc"
    TCP = "tcp"


class PluginActivation(StrEnum):
    """Which third-party plugins take part besides the selected ones."""

    AUTO = "auto"
    LISTED = "listed"
    NONE = "none"


class TransferRole(StrEnum):
    """What an instance does where prefill and decode are separate."""

    BOTH = "both"
    PREFILL = "prefill"
    DECODE = "decode"


class LoadBalancing(StrEnum):
    """Who spreads requests over data-parallel replicas."""

    INTERNAL = "internal"
    EXTERNAL = "external"
    HYBRID = "hybrid"


class ModelConfig(Section, frozen=True, kw_only=True):
    """What is served."""

    name: Annotated[
        str,
        Meta(description="Local directory, hub name, `package:NAME`, or path of a .gguf file."),
    ] = ""
    source: Annotated[
        str, Meta(description="Model source provider; auto asks each whether the name is its own.")
    ] = "auto"
    loader: Annotated[
        str, Meta(description="Model loader provider; auto: the best for model, type and device.")
    ] = "auto"
    tokenizer: Annotated[
        str | None, Meta(description="Directory or hub name of another tokenizer; `none` for none.")
    ] = None
    revision: Annotated[str | None, Meta(description="Branch, tag or commit of a hub model.")] = (
        None
    )
    dtype: Annotated[
        Dtype, Meta(description="Type of weights and activations; auto is the device's best.")
    ] = Dtype.AUTO
    max_model_len: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Prompt and output tokens; None: what the model has."),
    ] = None
    quantization: Annotated[
        str | None,
        Meta(
            description="How the loader keeps weights; `native` has int8, int4, gguf (as a GGUF "
            "file has them). None: in `dtype`."
        ),
    ] = None
    seed: Annotated[
        int, Meta(ge=0, le=2**63 - 1, description="Seed of draws for requests that give none.")
    ] = 0
    trust_remote_code: Annotated[
        bool,
        Meta(
            description="Allow Python code that comes with the model to run; code of other "
            "repositories is refused."
        ),
    ] = False


class CacheConfig(Section, frozen=True, kw_only=True):
    """The KV cache."""

    manager: Annotated[str, Meta(description="KV cache manager provider.")] = "paged"
    block_size: Annotated[int, Meta(ge=1, le=1024, description="Tokens a block.")] = 16
    num_blocks: Annotated[
        Annotated[int, Meta(ge=2)] | None,
        Meta(description="Blocks, besides the null block; excludes kv_bytes."),
    ] = None
    kv_bytes: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Bytes for blocks; None: a share of free memory."),
    ] = None
    kv_dtype: Annotated[Dtype, Meta(description="Type of keys and values; auto: the model's.")] = (
        Dtype.AUTO
    )
    enable_prefix_caching: Annotated[
        bool, Meta(description="Reuse blocks of requests with the same beginning.")
    ] = True
    eviction: Annotated[str, Meta(description="Eviction policy provider.")] = "lru"


class EngineSection(Section, frozen=True, kw_only=True):
    """The engine core."""

    process: Annotated[
        EngineProcess,
        Meta(description="auto: in-process for `launch`, a process of its own for `serve`."),
    ] = EngineProcess.AUTO
    start_timeout_s: Annotated[
        float, Meta(gt=0, description="Seconds until an engine process must be ready.")
    ] = 600.0
    heartbeat_timeout_s: Annotated[
        float, Meta(gt=0, description="Seconds without a sign of life until it is not ready.")
    ] = 5.0
    stall_timeout_s: Annotated[
        float, Meta(gt=0, description="Seconds of silence, or in one step, until it is not live.")
    ] = 60.0
    transport: Annotated[
        Transport,
        Meta(description="Between processes: ipc sockets, or tcp with CURVE keys on loopback."),
    ] = Transport.IPC
    max_message_bytes: Annotated[
        int, Meta(ge=1 << 16, description="Bytes of one message between processes.")
    ] = 1 << 30
    side_channels: Annotated[
        tuple[str, ...],
        Meta(description="Plugins' side channels between the engine core and its workers."),
    ] = ()
    debug: Annotated[
        bool, Meta(description="Check all invariants after every step; a raising observer raises.")
    ] = False


class SchedulerConfig(Section, frozen=True, kw_only=True):
    """Who runs, and how much of each, in a step."""

    name: Annotated[str, Meta(description="Scheduler provider.")] = "continuous"
    policies: Annotated[
        tuple[str, ...], Meta(min_length=1, description="Scheduling policies, strongest first.")
    ] = ("fcfs",)
    max_num_seqs: Annotated[int, Meta(ge=1, le=65536, description="Requests running at once.")] = 64
    max_num_batched_tokens: Annotated[int, Meta(ge=1, description="Tokens a step.")] = 2048
    long_prefill_token_threshold: Annotated[
        int, Meta(ge=0, description="Most prompt tokens of one request in a step; 0: no limit.")
    ] = 0
    prefill_beside_decode: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(
            description="Most prompt tokens in a step that others decode in, or as many as decode "
            "if these are more; None: what the worker says where the engine core has a process of "
            "its own, else no limit."
        ),
    ] = None
    async_stepping: Annotated[
        Switch, Meta(description="Schedule a step while the one before runs.")
    ] = Switch.AUTO


class ExecutorConfig(Section, frozen=True, kw_only=True):
    """Who runs the model, on what."""

    name: Annotated[str, Meta(description="Executor provider.")] = "uniproc"
    worker: Annotated[
        str, Meta(description="Worker provider; auto: the best for this machine.")
    ] = "auto"
    attention: Annotated[
        str, Meta(description="Attention backend provider; auto: the worker's choice.")
    ] = "auto"
    sampler: Annotated[str, Meta(description="Sampler provider.")] = "default"
    tensor_parallel_size: Annotated[int, Meta(ge=1, description="Ranks that share each layer.")] = 1
    pipeline_parallel_size: Annotated[
        int, Meta(ge=1, description="Stages that the layers are divided into.")
    ] = 1
    threads: Annotated[
        Annotated[int, Meta(ge=1, le=1024)] | None,
        Meta(description="Compute threads a worker; None: a thread for each usable core."),
    ] = None


class ParallelConfig(Section, frozen=True, kw_only=True):
    """Replicas."""

    data_parallel_size: Annotated[int, Meta(ge=1, description="Replicas of the engine.")] = 1
    data_parallel_rank: Annotated[
        int, Meta(ge=0, description="This replica, where an external balancer starts each.")
    ] = 0
    load_balancing: Annotated[
        LoadBalancing, Meta(description="Who spreads requests over replicas.")
    ] = LoadBalancing.INTERNAL
    balancer: Annotated[str, Meta(description="Load balancer provider.")] = "least_loaded"
    coordinator: Annotated[str, Meta(description="Coordinator provider.")] = "default"


class KVTransferConfig(Section, frozen=True, kw_only=True):
    """KV blocks between engines and tiers."""

    connectors: Annotated[
        tuple[str, ...], Meta(description="KV connector providers, asked in this order.")
    ] = ()
    role: Annotated[TransferRole, Meta(description="The part this instance does.")] = (
        TransferRole.BOTH
    )


class ServingConfig(Section, frozen=True, kw_only=True):
    """The network side."""

    frontend: Annotated[str, Meta(description="Front end provider.")] = "openai"
    processes: Annotated[int, Meta(ge=1, le=256, description="Front-end processes.")] = 1
    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="TCP port; 0: any free one.")] = 8000
    api_keys: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^\S(.*\S)?\Z")], ...],
        Meta(
            description="Accepted keys, not empty and without spaces around them; none: no "
            "authentication."
        ),
    ] = ()
    max_waiting_requests: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(
            description="Requests above those that can run at once; more are refused. None: no "
            "limit."
        ),
    ] = None
    max_body_bytes: Annotated[
        int, Meta(ge=1024, description="Bytes of a request's body; larger ones are refused.")
    ] = 16 * 1024 * 1024
    stat_loggers: Annotated[
        tuple[str, ...],
        Meta(description="Stat logger providers of a server, besides those of stats.loggers."),
    ] = ("prometheus",)
    tls_certificate: Annotated[
        str | None, Meta(description="PEM file of the certificate chain; with tls_key: HTTPS.")
    ] = None
    tls_key: Annotated[str | None, Meta(description="PEM file of its private key.")] = None
    drain_timeout_s: Annotated[
        float,
        Meta(
            ge=0, description="Seconds that running requests get when the server is told to stop."
        ),
    ] = 30.0


class StatsConfig(Section, frozen=True, kw_only=True):
    """Statistics."""

    loggers: Annotated[tuple[str, ...], Meta(description="Stat logger providers.")] = ("console",)
    interval_s: Annotated[float, Meta(gt=0, description="Seconds between reports.")] = 10.0
    tracers: Annotated[tuple[str, ...], Meta(description="Tracer providers.")] = ()


class PluginsConfig(Section, frozen=True, kw_only=True):
    """Which plugins take part, and their options."""

    activation: Annotated[
        PluginActivation,
        Meta(description="Observers, filters, routes and commands of third-party plugins."),
    ] = PluginActivation.AUTO
    enable: Annotated[tuple[str, ...], Meta(description="Plugins that take part when listed.")] = ()
    block: Annotated[tuple[str, ...], Meta(description="Plugins that are never imported.")] = ()
    required: Annotated[
        tuple[str, ...], Meta(description="Plugins without which nothing starts.")
    ] = ()
    options: Annotated[
        dict[str, dict[str, Any]],
        Meta(description="Options of a plugin or provider, by its name."),
    ] = msgspec.field(default_factory=dict)


class EngineConfig(Section, frozen=True, kw_only=True):
    """All settings of one engine."""

    model: ModelConfig = ModelConfig()
    cache: CacheConfig = CacheConfig()
    engine: EngineSection = EngineSection()
    scheduler: SchedulerConfig = SchedulerConfig()
    executor: ExecutorConfig = ExecutorConfig()
    parallel: ParallelConfig = ParallelConfig()
    kv_transfer: KVTransferConfig = KVTransferConfig()
    serving: ServingConfig = ServingConfig()
    stats: StatsConfig = StatsConfig()
    plugins: PluginsConfig = PluginsConfig()
