"""What a processor does wrong ends its request, with an error that names it, and no other."""

from __future__ import annotations

import importlib.abc
import re
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from framework import SamplingParams
from framework.launcher import Engine
from tests.core.scripted import launch_scripted
from tests.logits_processors.rules import FAILED, plugin

NEIGHBOURS = [[7, 8, 9], [5] * 20, [4, 6]]
COUNT = 6


def params(extensions: dict[str, Any] | None = None, max_tokens: int = COUNT) -> SamplingParams:
    return SamplingParams(
        temperature=0,
        max_tokens=max_tokens,
        ignore_eos=True,
        detokenize=False,
        extensions=extensions or {},
    )


def faulty(fault: str, at: int = 2, **fields: Any) -> SamplingParams:
    return params({"faulty": {"fault": fault, "at": at}}, **fields)


def tokens(output: Any) -> list[int]:
    return list(output.outputs[0].token_ids)


@pytest.mark.parametrize(
    ("fault", "num_tokens", "said"),
    [
        ("constructor", 0, "constructing it failed: LookupError: out of luck in constructor"),
        ("start", 0, "raised in start: LookupError: out of luck in start"),
        ("mask", 2, "raised in mask: LookupError: out of luck in mask"),
        # The token that was chosen is right: the failure is one of the next.
        ("accept", 3, "raised in accept: LookupError: out of luck in accept"),
        ("exit", 2, "raised in mask: SystemExit: that is all"),
        ("refuse constructor", 0, "refuses the request: not for me, says constructor"),
        ("refuse start", 0, "refuses the request in start: not for me, says start"),
        ("no tensor", 2, r"returned NoneType from mask; it must return torch.float32 of shape \["),
        ("shape", 2, r"returned torch.float32 of shape \[\d+\] from mask; it must"),
        ("dtype", 2, r"returned torch.float64 of shape \[\d+\] from mask; it must"),
        ("nan", 2, "returned nan from mask"),
        ("+inf", 2, "returned inf from mask; forbid a token with -inf"),
        ("nothing left", 2, "leaves no token to choose"),
    ],
)
def test_it_ends_its_request_alone(engine: Engine, fault: str, num_tokens: int, said: str) -> None:
    alone = engine.generate(NEIGHBOURS, params())
    prompts: Sequence[list[int]] = [NEIGHBOURS[0], [3, 3], *NEIGHBOURS[1:]]
    first, failed, *others = engine.generate(
        prompts, [params(), faulty(fault), params(), params({"affine-a": {}})]
    )
    assert [tokens(o) for o in (first, *others)] == [tokens(o) for o in alone]
    (end,) = failed.outputs
    assert (end.finish_reason, len(end.token_ids)) == ("error", num_tokens)
    assert end.error is not None
    assert re.search(said, end.error)
    assert "'faulty'" in end.error and "rules" in end.error


def test_one_whose_package_is_missing_ends_its_request_alone(engine: Engine) -> None:
    missing, other = engine.generate([[3], [4]], [params({"missing": {}}), params()])
    assert missing.outputs[0].finish_reason == "error"
    assert "nowhere_at_all" in str(missing.outputs[0].error)
    assert other.outputs[0].finish_reason == "length"


def test_a_failure_after_the_last_token_is_none(engine: Engine) -> None:
    (output,) = engine.generate([[3, 3]], faulty("accept", at=2, max_tokens=3))
    assert (output.outputs[0].finish_reason, len(tokens(output))) == ("length", 3)


def test_all_rows_of_a_step_may_fail(engine: Engine) -> None:
    outputs = engine.generate([[3], [4], [5]], faulty("mask", at=1))
    assert [o.outputs[0].finish_reason for o in outputs] == ["error"] * 3
    assert [len(tokens(o)) for o in outputs] == [1] * 3


@pytest.mark.parametrize("fault", ["constructor", "start"])
def test_one_that_can_not_start_does_not_compute_its_prompt(engine: Engine, fault: str) -> None:
    llm = engine.engine
    llm.add_request("long", [3] * 90, faulty(fault))  # 32 tokens a step
    assert [(o.request_id, o.outputs[0].finish_reason) for o in llm.step()] == [("long", "error")]
    while llm.has_unfinished_requests():
        llm.step()


def test_what_the_prompt_left_in_the_cache_is_good(engine: Engine) -> None:
    prompt = [11, 12, 13, 14, 15, 16, 17, 18, 19]
    (failed,) = engine.generate([prompt], faulty("nan", at=1))
    (cached,) = engine.generate([prompt], params())
    assert failed.outputs[0].finish_reason == "error"
    assert cached.num_cached_tokens == 8
    assert engine.engine.reset_prefix_cache()
    (fresh,) = engine.generate([prompt], params())
    assert tokens(cached) == tokens(fresh)


FAULTS = ["constructor", "start", "mask", "accept", "exit", "no tensor", "shape", "nan", "+inf"]


def counts(engine: Engine) -> tuple[int, int]:
    """Processors made, and failures."""
    (report,) = [report for report in engine.plugins() if report.name == "rules"]
    hook = "register_logits_processors"
    return report.calls[hook], report.errors[hook]


@pytest.mark.parametrize(
    "extensions",
    [*({"faulty": {"fault": fault}} for fault in FAULTS), {"missing": {}}],
    ids=[*FAULTS, "missing"],
)
def test_each_failure_is_counted_and_told(engine: Engine, extensions: dict[str, Any]) -> None:
    FAILED.clear()
    made, errors = counts(engine)
    outputs = engine.generate([[3], [4], [5]], [params(extensions), params(), params(extensions)])
    assert counts(engine) == (made + 2, errors + 2)
    assert len(FAILED) == 2
    for event, output in zip(FAILED, outputs[::2], strict=True):
        assert event.error == output.outputs[0].error
        assert (event.plugin, event.hook) == ("rules", "register_logits_processors")
        assert (event.action, event.role) == ("request failed", "worker")


@pytest.mark.parametrize("fault", ["refuse constructor", "refuse start"])
def test_a_refusal_is_no_failure(
    engine: Engine, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    FAILED.clear()
    _, errors = counts(engine)
    (output,) = engine.generate([[3]], faulty(fault))
    assert output.outputs[0].finish_reason == "error"
    assert counts(engine)[1] == errors
    assert not FAILED and not caplog.records


@pytest.mark.parametrize("fault", ["constructor", "start", "mask", "accept"])
def test_requests_can_not_flood_the_log(caplog: pytest.LogCaptureFixture, fault: str) -> None:
    with launch_scripted(plugins=[plugin]) as engine:
        engine.generate([[3]] * 3, faulty(fault))
        engine.generate([[3]] * 3, faulty(fault))
    (record,) = caplog.records
    assert record.exc_info is not None
    error = record.exc_info[1]
    assert isinstance(error.__cause__ or error if error else None, LookupError)
    assert "'faulty'" in record.getMessage() and "said once" in record.getMessage()


def test_a_missing_package_is_looked_for_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, fullname: str, *_: Any) -> None:
            if fullname == "nowhere_at_all":
                tries.append(fullname)

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    with launch_scripted(plugins=[plugin]) as engine:
        outputs = engine.generate([[3]] * 3, params({"missing": {}}))
    assert ["nowhere_at_all" in str(output.outputs[0].error) for output in outputs] == [True] * 3
    assert len(tries) == len(caplog.records) == 1
