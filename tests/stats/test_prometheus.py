"""The stat logger `prometheus`: what it exposes, that the numbers agree, and what it survives."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import prometheus_client
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from builtin_plugins.stats_prometheus.buckets import DEFAULTS, BucketFamily, one_two_five
from builtin_plugins.stats_prometheus.catalogue import CATALOGUE, MetricType
from builtin_plugins.stats_prometheus.options import PrometheusOptions
from builtin_plugins.stats_prometheus.plugin import plugin
from builtin_plugins.stats_prometheus.prometheus import PrometheusStatLogger
from builtin_plugins.stats_prometheus.recorder import MAX_PENDING
from framework.launcher import Engine
from hookspecs import EngineConfig, EngineHooks, FinishReason, PluginInfo, hookimpl
from hookspecs.contracts.stats import Exposition, StatLoggerContext
from hookspecs.errors import ProviderError
from hookspecs.events import StepFinished
from hookspecs.types.stats import (
    FinishedRequestStats,
    IterationStats,
    PluginCallStats,
    PrefixCacheStats,
    SchedulerStats,
)
from tests.core.scripted import greedy, launch_scripted

ROOT = Path(__file__).parents[2]
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def make(options: PrometheusOptions | None = None, **fields: Any) -> PrometheusStatLogger:
    fields.setdefault("model", "m")
    return PrometheusStatLogger(
        StatLoggerContext(config=EngineConfig(), options=options or PrometheusOptions(), **fields)
    )


def launch(**sections: Any) -> Engine:
    return launch_scripted(stats={"loggers": ["prometheus"]}, **sections)


def families(exposition: Exposition | None) -> list[Metric]:
    assert exposition is not None
    return list(text_string_to_metric_families(exposition.body.decode()))


class Numbers:
    """Samples of an exposition; labels of the model are left out."""

    def __init__(self, exposition: Exposition | None) -> None:
        self._samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in families(exposition):
            for sample in family.samples:
                self._samples.setdefault(sample.name, []).append((sample.labels, sample.value))

    def __call__(self, name: str, **labels: str) -> float:
        """The sum of a metric over all series that have these labels."""
        return sum(
            value
            for found, value in self._samples.get(f"framework_{name}", ())
            if labels.items() <= found.items()
        )


def numbers(engine: Engine) -> Numbers:
    (exposition,) = engine.engine.expositions()
    return Numbers(exposition)


def exposed(exposition: Exposition) -> dict[str, tuple[str, set[str]]]:
    """Name to type and label names, as the text says."""
    found: dict[str, tuple[str, set[str]]] = {}
    for family in families(exposition):
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {label for sample in family.samples for label in sample.labels}
        found[name] = (family.type, labels - {"le"})
    return found


def declared(*, vllm: bool) -> dict[str, tuple[str, set[str]]]:
    found = {spec.name: (spec.type.value, set(spec.labels)) for spec in CATALOGUE}
    if vllm:
        found |= {
            spec.vllm: (
                spec.type.value,
                {spec.vllm_labels.get(label, label) for label in spec.labels},
            )
            for spec in CATALOGUE
            if spec.vllm
        }
    return found


def filled(options: PrometheusOptions) -> PrometheusStatLogger:
    """Every metric has a series."""
    calls = PluginCallStats(plugin="p", hook="h", process="core", calls=3, errors=1, seconds=0.5)
    logger = make(options, plugin_calls=lambda: [calls])
    logger.record(SchedulerStats(num_running=-1), None)
    logger.record_rejection("queue_full")
    return logger


@pytest.mark.parametrize("vllm", [False, True])
def test_what_is_declared_is_exposed_and_nothing_else(vllm: bool) -> None:
    options = PrometheusOptions(vllm_names=vllm)
    exposition = filled(options).exposition()
    assert exposed(exposition) == declared(vllm=vllm)
    fresh = exposed(make(options).exposition())
    assert {name: type for name, (type, _) in fresh.items()} == {
        name: type for name, (type, _) in declared(vllm=vllm).items()
    }


def test_the_catalogue_follows_the_conventions_of_names() -> None:
    names = [spec.name for spec in CATALOGUE] + [spec.vllm for spec in CATALOGUE if spec.vllm]
    assert len(set(names)) == len(names)
    for spec in CATALOGUE:
        assert spec.name.startswith("framework_")
        assert spec.type is not MetricType.COUNTER or spec.name.endswith("_total")
        assert (spec.type is MetricType.HISTOGRAM) == (spec.buckets is not None)
        assert not spec.vllm or spec.vllm.startswith("vllm:")
        assert set(spec.vllm_labels) <= set(spec.labels)
        assert spec.help.endswith(".")


def test_the_content_type_is_that_of_the_text_format() -> None:
    assert make().exposition().content_type.startswith("text/plain; version=0.0.4")


def test_names_of_vllm_have_the_same_values() -> None:
    logger = make(PrometheusOptions(vllm_names=True))
    logger.record(
        SchedulerStats(num_running=2, kv_blocks_total=100, kv_blocks_free=25),
        IterationStats(
            timestamp=0.0,
            num_prompt_tokens=7,
            time_to_first_token=[0.03],
            finished=[finished(FinishReason.ABORT)],
        ),
    )
    text = logger.exposition().body.decode().splitlines()
    assert 'vllm:num_requests_running{engine="0",model_name="m"} 2.0' in text
    assert 'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.75' in text
    assert 'vllm:prompt_tokens_total{engine="0",model_name="m"} 7.0' in text
    assert (
        'vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 1.0' in text
    )
    assert (
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="0.04",model_name="m"} 1.0' in text
    )
    (info,) = [line for line in text if line.startswith("vllm:cache_config_info{")]
    assert 'num_gpu_blocks="100"' in info and 'block_size="16"' in info


def finished(reason: FinishReason = FinishReason.STOP, **fields: Any) -> FinishedRequestStats:
    defaults: dict[str, Any] = {"num_prompt_tokens": 5, "num_generation_tokens": 0}
    return FinishedRequestStats(request_id="a", finish_reason=reason, **{**defaults, **fields})


def assert_reconciled(now: Numbers) -> None:
    """The rule of docs/reference/metrics.md."""
    assert now("invalid_values_total") == 0
    assert now("requests_total") == now("e2e_request_latency_seconds_count")
    assert now("request_prompt_tokens_sum") == now("prompt_tokens_total")
    assert now("request_prefill_kv_computed_tokens_sum") == now(
        "prompt_tokens_by_source_total", source="local_compute"
    )
    assert now("prompt_tokens_cached_total") == now(
        "prompt_tokens_by_source_total", source="local_cache_hit"
    )
    assert now("prompt_tokens_by_source_total") == now("prompt_tokens_total")
    assert now("request_generation_tokens_sum") == now("generation_tokens_total")
    counts = {
        now(f"request_{name}_count")
        for name in ("prompt_tokens", "generation_tokens", "queue_time_seconds")
    }
    assert counts == {now("time_to_first_token_seconds_count")}
    assert now("inter_token_latency_seconds_count") == (
        now("generation_tokens_total") - now("time_to_first_token_seconds_count")
    )
    for gauge in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert now(gauge) == 0


@pytest.mark.parametrize("seed", range(3))
def test_sums_agree_under_random_aborts(seed: int) -> None:
    """Long prompts in chunks, a small cache that forces preemption, shared prefixes, n > 1."""
    choose = random.Random(seed)
    cache = {"num_blocks": 20}
    ended: dict[str, int] = {}
    with launch(cache=cache, engine={"debug": False}, scripted={"verify": False}) as engine:
        llm, ids, running = engine.engine, iter(range(1000)), set[str]()
        for _ in range(100):
            if choose.random() < 0.4:
                name = str(next(ids))
                prompt = [7] * choose.randrange(1, 40) + [choose.randrange(10, 90)] * 3
                count = choose.choice([1, 1, 3])
                params = greedy(choose.randrange(1, 24), n=count, temperature=1.0, seed=1)
                llm.add_request(name, prompt, params)
                running.add(name)
            if running and choose.random() < 0.15:
                gone = choose.sample(sorted(running), choose.randrange(1, len(running) + 1))
                for output in llm.abort_request(gone):
                    ended["abort"] = ended.get("abort", 0) + len(output.outputs)
                running.difference_update(gone)
            if llm.has_unfinished_requests():
                running -= {output.request_id for output in llm.step() if output.finished}
        while llm.has_unfinished_requests():
            llm.step()
        now = numbers(engine)
        assert_reconciled(now)
        assert now("requests_total", finish_reason="length") > 0
        assert now("num_preemptions_total") > 0
        assert 0 < now("requests_total", finish_reason="abort") <= ended["abort"]


def test_cancelling_everything_leaves_gauges_at_zero_and_counts_aborts() -> None:
    with launch() as engine:
        llm = engine.engine
        for index in range(20):
            llm.add_request(str(index), [5, 6, index + 10], greedy(100))
        for _ in range(3):
            llm.step()
        before = numbers(engine)
        assert before("num_requests_running") == 8
        assert before("num_requests_waiting") == 12
        assert before("kv_cache_usage_perc") > 0
        llm.abort_request(map(str, range(20)))
        while llm.has_unfinished_requests():
            llm.step()
        now = numbers(engine)
        assert now("requests_total", finish_reason="abort") == 20
        assert now("request_prompt_tokens_count") == 8
        assert now("prompt_tokens_total") == 24
        assert_reconciled(now)


GENERATION = (
    "request_generation_tokens",
    "request_params_max_tokens",
    "request_params_n",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_inference_time_seconds",
    "request_time_per_output_token_seconds",
    "time_to_first_token_seconds",
)


def test_embeddings_are_no_generations() -> None:
    with launch() as engine:
        engine.embed([[5, 6, 7], [8, 9]])
        now = numbers(engine)
        assert now("requests_total") == now("e2e_request_latency_seconds_count") == 2
        assert now("request_prompt_tokens_count") == now("request_queue_time_seconds_count") == 2
        assert now("request_prompt_tokens_sum") == now("prompt_tokens_total") == 5
        assert {name: now(f"{name}_count") for name in GENERATION} == dict.fromkeys(GENERATION, 0)
        engine.generate([[5, 6, 7]], greedy(4))
        now = numbers(engine)
        assert {name: now(f"{name}_count") for name in GENERATION} == dict.fromkeys(GENERATION, 1)


def test_every_end_is_counted_under_its_reason() -> None:
    logger = make()
    for count, reason in enumerate(FinishReason, 1):
        logger.record(None, IterationStats(timestamp=0.0, finished=[finished(reason)] * count))
    now = Numbers(logger.exposition())
    for count, reason in enumerate(FinishReason, 1):
        assert now("requests_total", finish_reason=str(reason)) == count


def test_state_and_depth_of_sleep_are_those_of_the_last_statistics() -> None:
    logger = make()
    for state, level, depth in (
        ("running", None, "awake"),
        ("sleeping", 1, "weights_offloaded"),
        ("sleeping", 2, "discard_all"),
        ("running", None, "awake"),
    ):
        logger.record(SchedulerStats(state=state, sleep_level=level), None)
        now = Numbers(logger.exposition())
        assert now("engine_state") == now("engine_sleep_state") == 1
        assert now("engine_state", state=state) == 1
        assert now("engine_sleep_state", sleep_state=depth) == 1


@settings(max_examples=30)
@given(st.lists(st.floats(0, 200) | st.sampled_from([0.01, 0.025, 80.0]), max_size=30))
def test_a_step_is_counted_as_its_values_one_by_one(values: list[float]) -> None:
    logger = make()
    logger.record(None, IterationStats(timestamp=0.0, inter_token_latency=values))
    name = "framework_inter_token_latency_seconds"
    bounds = DEFAULTS[BucketFamily.INTER_TOKEN_LATENCY]
    reference = prometheus_client.Histogram(name, "Seconds.", registry=None, buckets=bounds)
    for value in values:
        reference.observe(value)
    expected, found = (
        {
            (sample.name, sample.labels.get("le")): sample.value
            for family in metrics
            if family.name == name
            for sample in family.samples
            if not sample.name.endswith("_created")
        }
        for metrics in (reference.collect(), families(logger.exposition()))
    )
    assert found == pytest.approx(expected)


@given(seed=st.integers(0, 2**32), count=st.integers(0, 3 * MAX_PENDING))
@settings(max_examples=8, deadline=None)
def test_batches_that_are_counted_together_are_counted_as_one_by_one(seed: int, count: int) -> None:
    choices, together, single = random.Random(seed), make(), make()
    for _ in range(count):
        scheduler = iteration = None
        if choices.random() < 0.8:
            scheduler = SchedulerStats(
                num_running=choices.randrange(9),
                num_preempted=choices.randrange(3),
                prefix_cache=PrefixCacheStats(queries=choices.randrange(9), hits=1),
                state=choices.choice(["running", "paused"]),
            )
        if choices.random() < 0.8:
            iteration = IterationStats(
                timestamp=0.0,
                num_prompt_tokens=choices.randrange(2) * 7,
                num_generation_tokens=choices.randrange(4),
                inter_token_latency=[choices.random() for _ in range(choices.randrange(3))],
                finished=[finished(prefilled=choices.random() < 0.5)] * choices.randrange(2),
            )
        for logger in (together, single):
            logger.record(scheduler, iteration)
        single.exposition()
    found, expected = (
        {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in families(logger.exposition())
            for sample in family.samples
            if not sample.name.endswith("_created")
        }
        for logger in (together, single)
    )
    assert found == pytest.approx(expected)


def test_rejections_are_counted_by_reason() -> None:
    logger = make()
    for reason in ("queue_full", "queue_full", "sleeping"):
        logger.record_rejection(reason)
    now = Numbers(logger.exposition())
    assert now("admission_rejections_total", reason="queue_full") == 2
    assert now("admission_rejections_total", reason="sleeping") == 1


def test_every_reason_of_a_rejection_is_there_from_the_start() -> None:
    text = make().exposition().body.decode().splitlines()
    assert {line for line in text if line.startswith("framework_admission_rejections_total{")} == {
        f'framework_admission_rejections_total{{model_name="m",reason="{reason}"}} 0.0'
        for reason in ("draining", "queue_full", "sleeping", "waking")
    }


@pytest.mark.parametrize("bad", [-1, -0.5, float("nan"), float("inf"), float("-inf")])
def test_a_bad_number_is_left_out_and_counted(bad: Any) -> None:
    logger = make()
    scheduler = SchedulerStats(
        num_running=bad,
        num_preempted=bad,
        kv_blocks_total=4,
        kv_blocks_free=bad,
        prefix_cache=PrefixCacheStats(queries=bad, hits=1),
    )
    iteration = IterationStats(
        timestamp=bad,
        num_prompt_tokens=4,
        num_cached_tokens=bad,
        num_generation_tokens=bad,
        time_to_first_token=[bad, 1.0],
        inter_token_latency=[bad],
        finished=[
            finished(prefilled=True, e2e_latency=bad, num_generation_tokens=bad, queue_time=bad)
        ],
    )
    logger.record(scheduler, iteration)
    now = Numbers(logger.exposition())
    for metric in ("num_requests_running", "num_preemptions_total", "prefix_cache_queries_total"):
        assert now(metric) == 0
        assert now("invalid_values_total", metric=f"framework_{metric}") == 1
    assert now("prefix_cache_hits_total") == 1
    assert now("time_to_first_token_seconds_count") == 1
    assert now("time_to_first_token_seconds_sum") == 1.0
    assert now("request_queue_time_seconds_count") == 0
    assert now("requests_total") == 1


def test_loggers_share_nothing_with_each_other_or_the_process() -> None:
    before = prometheus_client.generate_latest()
    first, second = make(), make()
    first.record(SchedulerStats(num_running=3), None)
    second.record(SchedulerStats(num_running=5), None)
    second.close()
    assert Numbers(first.exposition())("num_requests_running") == 3
    assert Numbers(second.exposition())("num_requests_running") == 5
    assert b"framework_" not in prometheus_client.generate_latest()
    assert b"framework_" not in before


def test_engines_have_series_of_their_own() -> None:
    logger = make(engine_indexes=(0, 1))
    logger.record(SchedulerStats(num_running=3), None, 0)
    logger.record(SchedulerStats(num_running=4), None, 1)
    now = Numbers(logger.exposition())
    assert now("num_requests_running", engine="0") == 3
    assert now("num_requests_running", engine="1") == 4
    assert now("cache_config_info") == 2


class Watcher(EngineHooks):
    PLUGIN = PluginInfo(name="watcher", api=">=1.0,<2")

    @hookimpl
    def on_step_finished(self, event: StepFinished) -> None:
        if event.step == 2:
            raise RuntimeError("on purpose")


def test_calls_of_plugins_are_those_of_the_kernel() -> None:
    with launch(plugins=[Watcher()], engine={"debug": False}) as engine:
        engine.generate([[5, 6, 7]], greedy(4))
        now = numbers(engine)
        labels = {"plugin": "watcher", "hook": "on_step_finished", "process": "frontend"}
        assert now("plugin_calls_total", **labels) == 4
        assert now("plugin_errors_total", **labels) == 1
        assert now("plugin_seconds_total", **labels) > 0


def test_totals_of_plugins_follow_what_is_told() -> None:
    told = [PluginCallStats(plugin="p", hook="h", process="core", calls=3, errors=1, seconds=0.5)]
    logger = make(plugin_calls=lambda: told)
    logger.report()
    told[0] = msgspec.structs.replace(told[0], calls=9)
    assert Numbers(logger.exposition())("plugin_calls_total", plugin="p") == 9


def test_buckets_follow_the_model_and_the_options() -> None:
    assert one_two_five(1000) == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
    assert one_two_five(0) == (1,)
    options = msgspec.convert(
        {"buckets": {"request_latency": [0.5, 2]}}, PrometheusOptions, strict=True
    )
    text = make(options, max_model_len=20).exposition().body.decode()
    edges = {
        line.partition('le="')[2].partition('"')[0]
        for line in text.splitlines()
        if line.startswith("framework_e2e_request_latency_seconds_bucket")
    }
    assert edges == {"0.5", "2.0", "+Inf"}
    assert 'framework_request_prompt_tokens_bucket{engine="0",le="20.0"' in text
    assert 'framework_request_prompt_tokens_bucket{engine="0",le="50.0"' not in text


@pytest.mark.parametrize("bounds", [[], [2, 1], [1, 1], [1, float("inf")], [float("nan")]])
def test_bounds_that_are_none_are_refused(bounds: list[float]) -> None:
    with pytest.raises(msgspec.ValidationError, match="request_latency"):
        msgspec.convert({"buckets": {BucketFamily.REQUEST_LATENCY: bounds}}, PrometheusOptions)


CHILD = """
import sys
from hookspecs import EngineConfig
from hookspecs.contracts.stats import StatLoggerContext
from hookspecs.types.request import FinishReason
from hookspecs.types.stats import *
from builtin_plugins.stats_prometheus.options import PrometheusOptions
from builtin_plugins.stats_prometheus.prometheus import PrometheusStatLogger

index = int(sys.argv[2])
calls = [
    PluginCallStats(plugin="p", hook="h", process=process, calls=number, errors=0, seconds=1)
    for process, number in (("engine-core-0", 5 + index), (f"frontend-{index}", 10 + index))]
logger = PrometheusStatLogger(StatLoggerContext(
    config=EngineConfig(), options=PrometheusOptions(vllm_names=True), plugin="stats-prometheus",
    model="m", shared_dir=sys.argv[1], process_index=index, plugin_calls=lambda: calls))
for line in sys.stdin:
    if line == "record\\n":
        logger.record(
            SchedulerStats(num_running=1 + index, kv_blocks_total=10, kv_blocks_free=5),
            IterationStats(timestamp=0.0, num_prompt_tokens=10, time_to_first_token=[0.03],
                finished=[FinishedRequestStats(request_id="a", finish_reason=FinishReason.STOP,
                    num_prompt_tokens=10, num_generation_tokens=0)]))
        logger.record_rejection("queue_full")
        logger.report()
    else:
        sys.stdout.write(logger.exposition().body.decode())
    print("done", flush=True)
"""


class Child:
    """A front-end process with the stat logger, told by lines what to do."""

    def __init__(self, folder: Path, index: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(folder), str(index)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, what: str) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        lines: list[str] = []
        for line in self.process.stdout:
            if line == "done\n":
                return "".join(lines)
            lines.append(line)
        raise AssertionError(f"the child ended: {self.process.wait()}")

    def end(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait() == 0


@pytest.fixture
def children(tmp_path: Path) -> Iterator[list[Child]]:
    made = [Child(tmp_path, 0), Child(tmp_path, 1)]
    yield made
    for child in made:
        if child.process.stdin is not None and not child.process.stdin.closed:
            child.end()


def as_exposition(text: str) -> Exposition:
    return Exposition(content_type="", body=text.encode())


def test_processes_that_share_a_directory_expose_the_same_sums(children: list[Child]) -> None:
    first, second = children
    first.tell("record")
    second.tell("record")
    text = first.tell("expose")
    assert text == second.tell("expose")
    now = Numbers(as_exposition(text))
    assert now("prompt_tokens_total") == 20
    assert now("requests_total", finish_reason="stop") == 2
    assert now("time_to_first_token_seconds_count") == 2
    assert now("time_to_first_token_seconds_bucket", le="0.04") == 2
    assert now("admission_rejections_total") == 2
    assert now("num_requests_running") == 2  # the second told last
    assert now("kv_cache_usage_perc") == 0.5
    # Both know that of the core, the second a later one; each has its own.
    assert now("plugin_calls_total", process="engine-core-0") == 6
    assert now("plugin_calls_total", process="frontend-0") == 10
    assert now("plugin_calls_total", plugin="p") == 6 + 10 + 11
    names = exposed(as_exposition(text))
    assert {name: type for name, (type, _) in names.items()} == {
        name: type for name, (type, _) in declared(vllm=True).items()
    }
    first.tell("record")
    assert Numbers(as_exposition(second.tell("expose")))("num_requests_running") == 1


def test_what_a_process_counted_stays_when_it_ends(children: list[Child]) -> None:
    first, second = children
    first.tell("record")
    first.end()
    assert Numbers(as_exposition(second.tell("expose")))("prompt_tokens_total") == 10


def test_sharing_too_late_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="prometheus_client is imported already"):
        make(shared_dir=str(tmp_path))


def test_plugin_offers_prometheus() -> None:
    (provider,) = plugin.register_stat_loggers()
    assert (provider.name, provider.extra) == ("prometheus", "serve")
