"""Each part of the engine is replaced by one of an installed package, alone and all together.

The worker `scripted` makes a token from all tokens before it and checks blocks and positions
of every step, so equal tokens mean that a part did what the built-in one does.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import framework
from framework.cli.main import main
from hookspecs import EngineHooks, PluginInfo, RequestOutput, SamplingParams, hookimpl
from hookspecs.errors import FrameworkError
from hookspecs.events import EngineStarted, RequestAdmitted, RequestFinished

Config = Mapping[str, Mapping[str, Any]]

BUILT_IN: Config = {
    "model": {"name": "scripted"},
    "executor": {"worker": "scripted"},
    "stats": {"loggers": []},
    "engine": {"debug": True},
}
PARTS: dict[str, Config] = {
    "scheduler": {"scheduler": {"name": "acme-reserve"}},
    "policy": {"scheduler": {"policies": ["acme-last-come"]}},
    "kv_cache_manager": {"cache": {"manager": "acme-plain"}},
    "eviction_policy": {"cache": {"eviction": "acme-newest"}},
    "executor": {"executor": {"name": "acme-thread"}},
    "sampler": {"executor": {"sampler": "acme-greedy"}},
}
ECHO: Config = {"model": {"name": "echo"}, "executor": {"worker": "acme-echo"}}
SETTINGS: dict[str, Config] = {
    "defaults": {},
    "chunked prefill": {
        "scheduler": {"max_num_batched_tokens": 7, "max_num_seqs": 3},
        "cache": {"block_size": 4},
    },
    "short chunks": {
        "scheduler": {"long_prefill_token_threshold": 5},
        "cache": {"block_size": 4},
    },
    "one at a time": {"scheduler": {"max_num_seqs": 1}},
    "little cache": {"cache": {"block_size": 4, "num_blocks": 14}},
    "no prefix cache": {"cache": {"enable_prefix_caching": False, "block_size": 1}},
}
PROMPTS = [[7, 7, 7, 7, *range(3, 3 + length)] for length in (1, 9, 30, 2, 17, 5, 12, 26)]
GREEDY = SamplingParams(max_tokens=9, temperature=0, detokenize=False)


def merged(*configs: Config) -> dict[str, dict[str, Any]]:
    """Sections of configurations, key by key; the last counts."""
    result: dict[str, dict[str, Any]] = {}
    for config in configs:
        for section, values in config.items():
            result[section] = result.get(section, {}) | dict(values)
    return result


class Witness(EngineHooks):
    """Who took part, and what became of requests."""

    PLUGIN = PluginInfo(name="witness", api=">=1.0,<2")

    def __init__(self) -> None:
        self.parts: dict[str, str] = {}
        self.admitted: list[int] = []
        self.finished: list[RequestFinished] = []

    @hookimpl
    def on_engine_started(self, event: EngineStarted) -> None:
        self.parts = event.plugins

    @hookimpl
    def on_request_admitted(self, event: RequestAdmitted) -> None:
        self.admitted.append(event.num_prompt_tokens)

    @hookimpl
    def on_request_finished(self, event: RequestFinished) -> None:
        self.finished.append(event)

    @property
    def preemptions(self) -> int:
        return sum(event.num_preemptions for event in self.finished)


def told(outputs: list[RequestOutput]) -> list[tuple[list[int], str | None]]:
    """Tokens and finish reasons."""
    return [(output.outputs[0].token_ids, output.outputs[0].finish_reason) for output in outputs]


def run(
    *configs: Config,
    prompts: list[list[int]] = PROMPTS,
    params: SamplingParams | list[SamplingParams] = GREEDY,
) -> tuple[list[tuple[list[int], str | None]], Witness]:
    witness = Witness()
    with framework.launch(merged(BUILT_IN, *configs), plugins=[witness]) as engine:
        outputs = engine.generate(prompts, params)
    assert len(witness.finished) == len(prompts)
    return told(outputs), witness


@cache
def expected_of(setting: str) -> list[tuple[list[int], str | None]]:
    """What the built-in parts give."""
    return run(SETTINGS[setting])[0]


# One part


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("part", PARTS)
def test_one_part_alone_gives_the_same_tokens(acme: str, part: str, setting: str) -> None:
    assert run(SETTINGS[setting], PARTS[part])[0] == expected_of(setting)


@pytest.mark.parametrize("setting", SETTINGS)
def test_all_parts_together_give_the_same_tokens(acme: str, setting: str) -> None:
    found, witness = run(SETTINGS[setting], *PARTS.values())
    assert found == expected_of(setting)
    assert witness.parts["scheduler"] == "acme-reserve"
    assert witness.parts["policies"] == "acme-last-come"
    assert witness.parts["kv_cache_manager"] == "acme-plain"
    assert witness.parts["executor"] == "acme-thread"


@pytest.mark.parametrize("part", ["scheduler", "kv_cache_manager", "executor"])
def test_many_requests(acme: str, part: str) -> None:
    prompts = [[1 + n % 5, *range(n % 11)] for n in range(150)]
    setting: Config = {
        "scheduler": {"max_num_seqs": 16, "max_num_batched_tokens": 40},
        "cache": {"block_size": 4, "num_blocks": 60},
        "engine": {"debug": False},
    }
    expected, _ = run(setting, prompts=prompts)
    assert run(setting, PARTS[part], prompts=prompts)[0] == expected


@pytest.mark.parametrize("part", PARTS)
def test_a_selected_part_makes_the_plugin_active(acme: str, part: str) -> None:
    with framework.launch(merged(BUILT_IN, PARTS[part])) as engine:
        states = {report.name: str(report.state) for report in engine.plugins()}
    assert states[acme] == "active"


def test_without_a_selection_the_plugin_is_unused(acme: str) -> None:
    named: Config = {"model": {"source": "scripted"}}
    with framework.launch(merged(BUILT_IN, named)) as engine:
        states = {report.name: str(report.state) for report in engine.plugins()}
    assert states[acme] == "unused"


def test_the_scheduler_preempts_nobody_where_the_built_in_one_must(acme: str) -> None:
    setting: Config = {"cache": {"block_size": 4, "num_blocks": 12, "enable_prefix_caching": False}}
    prompts = [[n] * 9 for n in range(6)]
    params = SamplingParams(max_tokens=20, temperature=0, detokenize=False)
    expected, built_in = run(setting, prompts=prompts, params=params)
    found, own = run(setting, PARTS["scheduler"], prompts=prompts, params=params)
    assert (found, built_in.preemptions > 0, own.preemptions) == (expected, True, 0)


def test_the_kv_cache_manager_lives_through_preemption(acme: str) -> None:
    setting: Config = {"cache": {"block_size": 4, "num_blocks": 12}}
    prompts = [[n] * 9 for n in range(6)]
    params = SamplingParams(max_tokens=20, temperature=0, detokenize=False)
    expected, _ = run(setting, prompts=prompts, params=params)
    found, witness = run(setting, PARTS["kv_cache_manager"], prompts=prompts, params=params)
    assert found == expected
    assert witness.preemptions > 0


def test_what_the_manager_lacks_is_said(acme: str) -> None:
    lines: list[str] = []
    config = merged(
        BUILT_IN,
        PARTS["kv_cache_manager"],
        {"plugins": {"options": {"scripted": {"sliding_window": 6}}}},
    )
    with framework.launch(config, report=lines.append) as engine:
        outputs = engine.generate(PROMPTS, GREEDY)
    assert [output.finished for output in outputs] == [True] * len(PROMPTS)
    assert any("prefix caching is off" in line and "acme-plain" in line for line in lines)
    assert any("sliding_window" in line and "acme-plain" in line for line in lines)


def test_the_policy_turns_the_order_round(acme: str) -> None:
    one_by_one: Config = {"scheduler": {"max_num_seqs": 1}}
    prompts = [[5] * length for length in (1, 2, 3, 4)]
    _, forth = run(one_by_one, prompts=prompts)
    _, back = run(one_by_one, PARTS["policy"], prompts=prompts)
    assert forth.admitted == [1, 2, 3, 4]
    assert back.admitted == [4, 3, 2, 1]


@pytest.mark.parametrize("part", ["policy", "scheduler"])
def test_the_scheduler_and_the_policy_do_not_need_each_other(acme: str, part: str) -> None:
    setting: Config = {"scheduler": {"max_num_seqs": 1, "policies": ["priority", "fcfs"]}}
    prompts = [[5] * length for length in (1, 2, 3)]
    witness = Witness()
    config = merged(BUILT_IN, PARTS["scheduler"], setting)
    if part == "policy":
        config["scheduler"]["policies"] = ["priority", "acme-last-come"]
    with framework.launch(config, plugins=[witness]) as engine:
        engine.generate(prompts, GREEDY, priority=[1, 0, 0])
    assert witness.admitted == ([2, 3, 1] if part == "scheduler" else [3, 2, 1])


def test_the_eviction_policy_keeps_other_blocks(acme: str) -> None:
    """Prompts in turn that just do not fit: the oldest is always the next one needed."""
    setting: Config = {"cache": {"block_size": 4, "num_blocks": 10}}
    prompts = [[n] * 13 for n in (1, 2, 3, 4)]
    params = SamplingParams(max_tokens=1, temperature=0, detokenize=False)

    def hits(*configs: Config) -> int:
        with framework.launch(merged(BUILT_IN, setting, *configs)) as engine:
            turns = [engine.generate([prompt], params) for prompt in prompts * 3]
        return sum(output.num_cached_tokens for turn in turns for output in turn)

    assert hits() == 0
    assert hits(PARTS["eviction_policy"]) > 0


def test_the_executor_has_a_thread_until_shutdown(acme: str) -> None:
    def threads() -> list[str]:
        return [t.name for t in threading.enumerate() if t.name.startswith("acme-worker")]

    with framework.launch(merged(BUILT_IN, PARTS["executor"])) as engine:
        engine.generate(PROMPTS, GREEDY)
        assert len(threads()) == 1
    assert threads() == []


def test_an_executor_whose_worker_can_not_be_made_leaves_no_thread(acme: str) -> None:
    config = merged(BUILT_IN, PARTS["executor"], {"executor": {"worker": "acme-echo"}})
    config["executor"]["sampler"] = "acme-gone"
    with pytest.raises(FrameworkError, match="acme-gone"):
        framework.launch(config)
    assert not [t for t in threading.enumerate() if t.name.startswith("acme-worker")]


@given(
    lengths=st.lists(st.tuples(st.integers(1, 25), st.integers(1, 9)), min_size=1, max_size=9),
    block_size=st.sampled_from([1, 3, 4, 16]),
    spare_blocks=st.integers(0, 30),
    max_num_seqs=st.integers(1, 5),
    budget=st.integers(1, 30),
    chosen=st.sets(st.sampled_from(sorted(PARTS))),
)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_parts_in_any_cache_give_the_same_tokens(
    acme: str,
    lengths: list[tuple[int, int]],
    block_size: int,
    spare_blocks: int,
    max_num_seqs: int,
    budget: int,
    chosen: set[str],
) -> None:
    """The cache holds at least the longest request."""
    longest = max(prompt + output for prompt, output in lengths)
    setting: Config = {
        "cache": {
            "block_size": block_size,
            "num_blocks": 2 + longest // block_size + spare_blocks,
        },
        "scheduler": {"max_num_seqs": max_num_seqs, "max_num_batched_tokens": budget},
    }
    prompts = [[9] * prompt for prompt, _ in lengths]
    params = [
        SamplingParams(max_tokens=output, temperature=0, detokenize=False) for _, output in lengths
    ]
    expected, _ = run(setting, prompts=prompts, params=params)
    assert [len(tokens) for tokens, _ in expected] == [output for _, output in lengths]
    assert run(setting, *(PARTS[part] for part in chosen), prompts=prompts, params=params)[0] == (
        expected
    )


# Requests that end early


@pytest.mark.parametrize("part", ["scheduler", "kv_cache_manager", "executor", "all"])
def test_aborted_requests_leave_nothing_behind(acme: str, part: str) -> None:
    """Waiting, half-computed and decoding requests; debugging checks all accounts each step."""
    setting = merged(BUILT_IN, SETTINGS["chunked prefill"])
    chosen = PARTS.values() if part == "all" else [PARTS[part]]
    expected = dict(enumerate(expected_of("chunked prefill")))
    witness = Witness()
    found: dict[int, tuple[list[int], str | None]] = {}
    with framework.launch(merged(setting, *chosen), plugins=[witness]) as handle:
        engine = handle.engine
        for number, prompt in enumerate(PROMPTS):
            engine.add_request(str(number), prompt, GREEDY)
        for step in range(1000):
            if not engine.has_unfinished_requests():
                break
            for output in engine.step():
                if output.finished:
                    found[int(output.request_id)] = told([output])[0]
            if step % 3 == 1 and step < 15:
                engine.abort_request(str(step // 3 * 2))
        assert not engine.has_unfinished_requests()
        assert told(handle.generate(PROMPTS, GREEDY)) == list(expected.values())
    reasons = [event.finish_reason.name for event in witness.finished]
    assert "ABORT" in reasons
    assert len(reasons) == 2 * len(PROMPTS)
    assert found == {number: expected[number] for number in found}


def test_a_stream_that_is_left_frees_its_blocks(acme: str) -> None:
    with framework.launch(merged(BUILT_IN, *PARTS.values())) as engine:
        for output in engine.stream(PROMPTS[2], GREEDY):
            if len(output.outputs[0].token_ids) == 3:
                break
        assert engine.reset_prefix_cache()


# Worker, sampler, stat logger


@pytest.mark.parametrize("sampler", ["default", "acme-greedy"])
@pytest.mark.parametrize("others", [False, True])
def test_the_echo_worker(acme: str, sampler: str, others: bool) -> None:
    options: Config = {
        "plugins": {"options": {"acme-echo": {"vocab_size": 50, "max_model_len": 64}}},
        "executor": {"sampler": sampler},
    }
    chosen = list(PARTS.values()) if others else []
    prompts = [[4, 7], [49], [46, 47], [1] * 40]
    found, _ = run(
        SETTINGS["chunked prefill"],
        *chosen,
        ECHO,
        options,
        prompts=prompts,
        params=SamplingParams(max_tokens=4, temperature=0, detokenize=False),
    )
    expected = [[8, 9, 10, 11], [0, 1, 2, 3], [48, 49, 0, 1], [2, 3, 4, 5]]
    assert found == [(tokens, "length") for tokens in expected]


def test_the_model_source_alone_is_found_by_the_models_name(acme: str) -> None:
    """Files are no concern of the scripted worker: any model of the right size will do."""
    with framework.launch(merged(BUILT_IN, {"model": {"name": "echo"}})) as engine:
        assert engine.model.info.architecture == "AcmeEcho"


@pytest.mark.parametrize("worker", ["scripted", "acme-echo"])
def test_the_sampler_tells_the_same_logprobs(acme: str, worker: str) -> None:
    params = SamplingParams(max_tokens=5, temperature=0, logprobs=1, detokenize=False)
    base = merged(BUILT_IN, ECHO if worker == "acme-echo" else {})

    def logprobs(sampler: str) -> list[dict[int, tuple[Any, int]]]:
        with framework.launch(merged(base, {"executor": {"sampler": sampler}})) as engine:
            outputs = engine.generate(PROMPTS[:3], params)
        return [
            {
                token: (pytest.approx(found.logprob, abs=1e-6), found.rank)
                for token, found in position.items()
            }
            for output in outputs
            for position in output.outputs[0].logprobs or ()
        ]

    expected = logprobs("default")
    assert len(expected) == 3 * 5
    assert logprobs("acme-greedy") == expected


def test_the_sampler_fails_a_row_and_the_others_go_on(acme: str) -> None:
    with framework.launch(merged(BUILT_IN, ECHO, PARTS["sampler"])) as engine:
        drawn = SamplingParams(max_tokens=3, temperature=1.0, detokenize=False)
        failed, done = engine.generate([[5], [5]], [drawn, GREEDY])
    assert failed.outputs[0].finish_reason == "error"
    assert "select another sampler" in (failed.outputs[0].error or "")
    assert done.outputs[0].token_ids == list(range(6, 15))


def test_the_stat_logger_beside_a_built_in_one(acme: str, tmp_path: Path) -> None:
    path = tmp_path / "totals.json"
    stats: Config = {
        "stats": {"loggers": ["acme-totals", "console"]},
        "plugins": {"options": {"acme-totals": {"path": str(path)}}},
    }
    run(stats)
    assert json.loads(path.read_text()) == {
        "prompt_tokens": sum(map(len, PROMPTS)),
        "generation_tokens": 9 * len(PROMPTS),
        "finished": len(PROMPTS),
    }


# The command line


def test_the_command_line_sees_the_package(acme: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "check", acme]) == 0
    capsys.readouterr()
    assert main(["plugins", "list", "--json", "--scheduler.name=acme-reserve"]) == 0
    (report,) = [one for one in json.loads(capsys.readouterr().out) if one["name"] == acme]
    assert report["state"] == "active"
    assert report["source"] == "entry_point"
    assert report["distribution"] == "acme-engine-parts"
    assert "kv_cache_manager:acme-plain" in report["providers"]


def test_blocked_parts_are_not_there(acme: str) -> None:
    blocked: Config = {"plugins": {"block": [acme]}}
    with pytest.raises(FrameworkError, match="acme-engine-parts"):
        framework.launch(merged(BUILT_IN, PARTS["scheduler"], blocked))
