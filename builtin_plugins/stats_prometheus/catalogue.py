"""Every metric: made, exposed and documented from this list, and from nothing else.

The names are an interface: dashboards and alerts depend on them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from builtin_plugins.stats_prometheus.buckets import BucketFamily

__all__ = ["CATALOGUE", "PREFIX", "MetricSpec", "MetricType", "Origin"]

PREFIX: Final = "framework_"
ENGINE: Final = ("model_name", "engine")
"""Labels of what belongs to one engine."""


class MetricType(StrEnum):
    """As the text format calls them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Origin(StrEnum):
    """Where a value comes from."""

    RECORDED = "recorded"
    """Gathered here from what is recorded."""
    TOTALS = "totals"
    """A total that another part keeps; read when the metrics are read."""
    FACT = "fact"
    """Always 1; the labels say it."""


class MetricSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One metric. A counter's name ends in `_total`."""

    name: str
    """As exposed."""
    type: MetricType
    labels: tuple[str, ...] = ENGINE
    unit: str
    help: str
    meaning: str = ""
    """What counts, exactly, where the help does not say it all."""
    buckets: BucketFamily | None = None
    vllm: str = ""
    """Its name under `vllm_names`; empty: vLLM has no such metric."""
    vllm_labels: dict[str, str] = {}
    """Labels that are called otherwise there."""
    origin: Origin = Origin.RECORDED

    @property
    def family(self) -> str:
        """The name as prometheus-client and OpenMetrics have it: a counter's without `_total`."""
        return self.name.removesuffix("_total") if self.type is MetricType.COUNTER else self.name


def _counter(name: str, unit: str, help: str, meaning: str = "", **more: object) -> MetricSpec:
    return _spec(MetricType.COUNTER, f"{name}_total", unit, help, meaning, more)


def _gauge(name: str, unit: str, help: str, meaning: str = "", **more: object) -> MetricSpec:
    return _spec(MetricType.GAUGE, name, unit, help, meaning, more)


def _histogram(
    name: str, unit: str, buckets: BucketFamily, help: str, meaning: str = "", **more: object
) -> MetricSpec:
    return _spec(MetricType.HISTOGRAM, name, unit, help, meaning, {"buckets": buckets, **more})


def _spec(
    type: MetricType, name: str, unit: str, help: str, meaning: str, more: dict[str, object]
) -> MetricSpec:
    fields = {"vllm": f"vllm:{name}", **more}
    return msgspec.convert(
        {
            "name": PREFIX + name,
            "type": type,
            "unit": unit,
            "help": help,
            "meaning": meaning,
            **fields,
        },
        MetricSpec,
    )


_PREFILLED: Final = "Outputs whose prompt was computed to the end"
_GENERATED: Final = f"{_PREFILLED}, without embeddings"
_PROCESS: Final = (
    "`process` is `engine-core-N` or `frontend`; `frontend-N` where `serving.processes` is above 1."
)

CATALOGUE: Final[tuple[MetricSpec, ...]] = (
    _gauge("num_requests_running", "requests", "Requests that steps are computed for."),
    _gauge("num_requests_waiting", "requests", "Requests that wait to be computed."),
    _gauge(
        "kv_cache_usage_perc",
        "ratio",
        "Share of the KV cache's blocks in use, 0 to 1.",
        "In spite of its name no percentage.",
    ),
    _gauge("kv_cache_blocks", "blocks", "Blocks of the KV cache.", vllm=""),
    _gauge(
        "engine_state",
        "",
        "1 for the state that the engine is in, 0 for the others.",
        "All are 0 before the first statistics.",
        labels=(*ENGINE, "state"),
        vllm="",
    ),
    _gauge(
        "engine_sleep_state",
        "",
        "1 for how deep the engine sleeps, 0 for the others.",
        "`awake`; `weights_offloaded`: level 1, weights are kept elsewhere; `discard_all`: level "
        "2, nothing is kept. All are 0 before the first statistics.",
        labels=(*ENGINE, "sleep_state"),
    ),
    _gauge(
        "cache_config_info",
        "",
        "The configuration of the KV cache, in labels.",
        "`num_blocks` is what the engine has once that is known, before what is configured.",
        labels=(
            *ENGINE,
            "manager",
            "block_size",
            "num_blocks",
            "kv_dtype",
            "enable_prefix_caching",
            "eviction",
        ),
        vllm_labels={"num_blocks": "num_gpu_blocks", "kv_dtype": "cache_dtype"},
        origin=Origin.FACT,
    ),
    _gauge(
        "build_info",
        "",
        "The version of the software, in labels.",
        "`version` is of the distribution, `api_version` of the plugin contract.",
        labels=("model_name", "version", "api_version"),
        vllm="",
        origin=Origin.FACT,
    ),
    _counter(
        "requests",
        "outputs",
        "Outputs of requests that ended, by why they ended.",
        "Each of the n outputs of a request counts, once, whatever ended it. An embedding is one "
        "output.",
        labels=(*ENGINE, "finish_reason"),
        vllm="vllm:request_success_total",
        vllm_labels={"finish_reason": "finished_reason"},
    ),
    _counter(
        "admission_rejections",
        "requests",
        "Requests that were refused before they reached an engine, by reason.",
        "`draining`, `queue_full`, `sleeping` or `waking`.",
        labels=("model_name", "reason"),
    ),
    _counter(
        "prompt_tokens",
        "tokens",
        "Prompt tokens of outputs whose prompt was computed to the end.",
        "Counted with the first output, the tokens that the prefix cache had included. Outputs "
        "that end before that count nothing.",
    ),
    _counter(
        "prompt_tokens_by_source",
        "tokens",
        "Prompt tokens by where their keys and values came from.",
        "`local_compute` or `local_cache_hit`; they sum to `framework_prompt_tokens_total`.",
        labels=(*ENGINE, "source"),
    ),
    _counter("prompt_tokens_cached", "tokens", "Prompt tokens that the prefix cache had."),
    _counter("generation_tokens", "tokens", "Tokens that were generated and given to a request."),
    _counter(
        "prefix_cache_queries",
        "tokens",
        "Tokens looked up in the prefix cache.",
        "Without lookups of requests that resume after a preemption.",
    ),
    _counter(
        "prefix_cache_hits",
        "tokens",
        "Tokens that the prefix cache had.",
        "Without lookups of requests that resume after a preemption.",
    ),
    _counter("num_preemptions", "preemptions", "Requests that gave up their blocks for others."),
    _histogram(
        "iteration_tokens_total",
        "tokens",
        BucketFamily.ITERATION_TOKENS,
        "Prompt tokens computed and tokens generated, by batch of outputs.",
        "Prompt tokens are those of prompts that were completed. Batches without either do not "
        "count.",
    ),
    _histogram(
        "time_to_first_token_seconds",
        "seconds",
        BucketFamily.TIME_TO_FIRST_TOKEN,
        "From arrival to the first token, as seen by the front end.",
    ),
    _histogram(
        "inter_token_latency_seconds",
        "seconds",
        BucketFamily.INTER_TOKEN_LATENCY,
        "From one token to the next.",
        "Tokens that come together share the time since those before.",
    ),
    _histogram(
        "request_time_per_output_token_seconds",
        "seconds",
        BucketFamily.INTER_TOKEN_LATENCY,
        "Mean time between the tokens of an output.",
        "Outputs of at least two tokens.",
    ),
    _histogram(
        "e2e_request_latency_seconds",
        "seconds",
        BucketFamily.REQUEST_LATENCY,
        "From arrival to the end.",
        "All outputs, whatever ended them.",
    ),
    _histogram(
        "request_queue_time_seconds",
        "seconds",
        BucketFamily.REQUEST_LATENCY,
        "From queued to first scheduled.",
        f"{_PREFILLED}.",
    ),
    _histogram(
        "request_prefill_time_seconds",
        "seconds",
        BucketFamily.REQUEST_LATENCY,
        "From first scheduled to the first token.",
        f"{_GENERATED}.",
    ),
    _histogram(
        "request_decode_time_seconds",
        "seconds",
        BucketFamily.REQUEST_LATENCY,
        "From the first to the last token.",
        f"{_GENERATED}.",
    ),
    _histogram(
        "request_inference_time_seconds",
        "seconds",
        BucketFamily.REQUEST_LATENCY,
        "From first scheduled to the last token.",
        f"{_GENERATED}.",
    ),
    _histogram(
        "request_prompt_tokens",
        "tokens",
        BucketFamily.REQUEST_TOKENS,
        "Tokens of the prompt.",
        f"{_PREFILLED}.",
    ),
    _histogram(
        "request_prefill_kv_computed_tokens",
        "tokens",
        BucketFamily.REQUEST_TOKENS,
        "Tokens of the prompt that the prefix cache did not have.",
        f"{_PREFILLED}.",
    ),
    _histogram(
        "request_generation_tokens",
        "tokens",
        BucketFamily.REQUEST_TOKENS,
        "Tokens that were generated.",
        f"{_GENERATED}.",
    ),
    _histogram(
        "request_params_max_tokens",
        "tokens",
        BucketFamily.REQUEST_TOKENS,
        "The limit of generated tokens that was asked for.",
        "All outputs that have one; embeddings have none.",
    ),
    _histogram(
        "request_params_n",
        "outputs",
        BucketFamily.REQUEST_PARAMS_N,
        "Outputs that the request asked for.",
        "All outputs but embeddings: a request with n outputs counts n times.",
    ),
    _histogram(
        "request_num_preemptions",
        "preemptions",
        BucketFamily.REQUEST_NUM_PREEMPTIONS,
        "How often it was preempted.",
        "All outputs.",
    ),
    _counter(
        "plugin_calls",
        "calls",
        "Calls of a plugin's hook.",
        _PROCESS,
        labels=("plugin", "hook", "process"),
        vllm="",
        origin=Origin.TOTALS,
    ),
    _counter(
        "plugin_errors",
        "calls",
        "Calls of a plugin's hook that raised.",
        _PROCESS,
        labels=("plugin", "hook", "process"),
        vllm="",
        origin=Origin.TOTALS,
    ),
    _counter(
        "plugin_seconds",
        "seconds",
        "Time spent in a plugin's hook.",
        _PROCESS,
        labels=("plugin", "hook", "process"),
        vllm="",
        origin=Origin.TOTALS,
    ),
    _counter(
        "invalid_values",
        "values",
        "Values that were left out: negative, infinite or no number.",
        "`metric` is the one that would have taken it. Whoever reported it has a fault.",
        labels=("model_name", "metric"),
        vllm="",
    ),
)
