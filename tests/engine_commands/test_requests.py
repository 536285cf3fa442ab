"""The built-in command `requests`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from framework.launcher import Engine
from hookspecs.errors import InvalidRequestError
from tests.core.scripted import greedy, launch_scripted

PROMPT = [3, 4, 5, 6, 7]


@pytest.fixture
def engine() -> Iterator[Engine]:
    with launch_scripted(scheduler={"max_num_seqs": 2}) as engine:
        yield engine


def test_it_lists_the_oldest_first_and_counts_the_rest(engine: Engine) -> None:
    for number in range(5):
        engine.engine.add_request(
            f"r{number}",
            [40 + number, *PROMPT[1:]],
            greedy(8),
            tenant="ab"[number % 2],
            priority=number,
        )
    engine.engine.step()
    engine.engine.step()
    report = engine.command("requests", {})
    assert [line["request_id"].partition("-")[0] for line in report["requests"]] == [
        f"r{number}" for number in range(5)
    ]
    assert [line["status"] for line in report["requests"]] == ["running"] * 2 + ["waiting"] * 3
    first = report["requests"][0]
    assert first["age_s"] >= report["requests"][-1]["age_s"] >= 0
    del first["request_id"], first["age_s"]
    assert first == {
        "tenant": "a",
        "status": "running",
        "priority": 0,
        "prompt_tokens": 5,
        "output_tokens": 2,
        "blocks_needed": 2,
        "preemptions": 0,
    }
    totals = {"running": 2, "waiting": 3, "preempted": 0, "prompt_tokens": 25, "output_tokens": 4}
    assert report["totals"] == totals
    assert (report["left_out"], report["engine_index"]) == (0, 0)
    assert report["blocks_free"] < report["blocks_total"] == 64

    few = engine.command("requests", {"tenant": "b", "limit": 1})
    assert [line["tenant"] for line in few["requests"]] == ["b"]
    assert few["left_out"] == 1
    assert (few["totals"]["running"], few["totals"]["waiting"]) == (1, 1)

    assert engine.command("requests", {"tenant": "nobody"})["requests"] == []
    none = engine.command("requests", {"limit": 0})
    assert (none["requests"], none["left_out"], none["totals"]) == ([], 5, totals)


def test_preempted_requests_are_told_from_those_that_never_ran(engine: Engine) -> None:
    engine.engine.add_request("a", PROMPT, greedy(8))
    engine.engine.step()
    engine.pause("keep", clear_cache=True)
    report = engine.command("requests", {})
    assert report["totals"]["preempted"] == 1
    assert report["requests"][0]["status"] == "preempted"
    assert report["requests"][0]["preemptions"] == 1
    assert report["blocks_free"] == report["blocks_total"]


@pytest.mark.parametrize("arguments", [{"limit": -1}, {"limit": 1001}, {"tenant": 3}])
def test_bounds(engine: Engine, arguments: dict[str, int]) -> None:
    with pytest.raises(InvalidRequestError, match=r"requests\."):
        engine.command("requests", arguments)
