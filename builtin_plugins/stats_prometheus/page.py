"""The page of the reference that lists all metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from builtin_plugins.stats_prometheus.buckets import UNKNOWN_LEN, BucketFamily, bounds
from builtin_plugins.stats_prometheus.catalogue import CATALOGUE, MetricSpec, MetricType

__all__ = ["metrics_page"]

INTRODUCTION = """\
What the stat logger `prometheus` exposes, and nothing else. With
`plugins.options.prometheus.vllm_names` the metrics that vLLM has too are there under its names as
well, so that dashboards that were made for it work.
"""

RECONCILE = """\
An *output* is one of the n outputs of a request; n is 1 for most. When no request is running or
waiting, and `framework_invalid_values_total` is 0:

- `framework_requests_total`, summed over `finish_reason`, is the count of
  `framework_e2e_request_latency_seconds`: every output ends once, whatever ended it.
- The sum of `framework_request_prompt_tokens` is `framework_prompt_tokens_total`, and the sum of
  `framework_request_prefill_kv_computed_tokens` is its part with the source `local_compute`.
- The sum of `framework_request_generation_tokens` is `framework_generation_tokens_total`.
- The count of these histograms is that of outputs whose prompt was computed to the end. Others,
  which were aborted, failed or timed out before, count in none of the numbers of tokens.
- An embedding is an output without generated tokens: it counts in none of the histograms of them,
  of their times and of sampling parameters, but in all others.
- `framework_num_requests_running`, `framework_num_requests_waiting` and
  `framework_kv_cache_usage_perc` are 0.
"""


def metrics_page() -> Iterator[str | tuple[Sequence[str], Sequence[Sequence[str]]]]:
    """Blocks of Markdown; a pair of column titles and rows is a table."""
    yield "# Metrics"
    yield INTRODUCTION.strip()
    yield "## How the numbers agree"
    yield RECONCILE.strip()
    for type in MetricType:
        yield f"## {type.value.capitalize()}s"
        yield (
            ("name", "labels", "unit", "meaning", "vLLM's name"),
            [_row(spec) for spec in CATALOGUE if spec.type is type],
        )
    yield "## Buckets"
    yield "Upper bounds by family; `plugins.options.prometheus.buckets` sets others."
    yield (("family", "bounds", "histograms"), [_buckets(family) for family in BucketFamily])


def _row(spec: MetricSpec) -> tuple[str, ...]:
    renamed = [f"`{ours}` is `{theirs}`" for ours, theirs in spec.vllm_labels.items()]
    theirs = f"`{spec.vllm}`" if spec.vllm else ""
    return (
        f"`{spec.name}`",
        ", ".join(f"`{label}`" for label in spec.labels),
        spec.unit,
        f"{spec.help} {spec.meaning}",
        "; ".join([theirs, *renamed]),
    )


def _buckets(family: BucketFamily) -> tuple[str, str, str]:
    if family is BucketFamily.REQUEST_TOKENS:
        shown = (
            "1, 2, 5, 10, 20, 50 ... up to the length that the model allows, or "
            f"{UNKNOWN_LEN} if that is not known"
        )
    else:
        shown = ", ".join(f"{bound:g}" for bound in bounds({}, 0)[family])
    users = [f"`{spec.name}`" for spec in CATALOGUE if spec.buckets is family]
    return f"`{family}`", shown, ", ".join(users)
