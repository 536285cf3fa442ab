"""A half that fails is detached, and nothing else changes."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from hookspecs.errors import (
    ContractViolation,
    EngineDeadError,
    InternalError,
    ProviderError,
    ProviderNotFoundError,
)
from tests.core.scripted import tokens_of
from tests.side_channels.launches import PARAMS, PROMPTS, Listener, expected, launch_probe
from tests.side_channels.probe import calls_in

ANSWERS = {
    "raises": "RuntimeError: the probe broke",
    "exits": "SystemExit: 3",
    "wrong type": "gave a int that does not fit Probe",
    "other struct": "gave a Lookalike that does not fit Probe",
    "wrong field": r"Expected `int`, got `str` - at `\$.step`",
    "unencodable": "TypeError: Encoding objects of type object is unsupported",
    "lone surrogate": "UnicodeEncodeError",
    "too large": "a message has at most 1048576",
}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture(scope="module")
def tokens() -> list[list[int]]:
    return expected()


def failing(place: str, how: str, at: int = 2) -> dict[str, Any]:
    return {"fail_in": place, "fail_how": how, "fail_at": at}


@pytest.mark.parametrize(
    ("place", "how"),
    [
        *(("core.message", how) for how in ANSWERS),
        *(("worker.reply", how) for how in ANSWERS),
        *(
            (place, how)
            for place in ("core.on_reply", "worker.on_step")
            for how in list(ANSWERS)[:2]
        ),
    ],
)
def test_the_half_is_detached_and_tokens_stay(
    log: Path,
    tokens: list[list[int]],
    caplog: pytest.LogCaptureFixture,
    place: str,
    how: str,
) -> None:
    side, method = place.split(".")
    other = {"core": "worker", "worker": "core"}[side]
    listener = Listener()
    with launch_probe(
        log, "probe", "one-way", plugins=[listener], options=failing(place, how)
    ) as engine:
        assert tokens_of(engine.generate(PROMPTS, PARAMS)) == tokens
        report = {report.name: report for report in engine.plugins()}["probe"]
    assert report.errors["register_side_channels"] == 1

    (failure,) = listener.failed
    assert (failure.plugin, failure.action, failure.role) == ("probe", "detached", side)
    assert failure.hook == "register_side_channels"
    (said,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert said.exc_info is not None
    text = said.getMessage()
    assert f"the {side} half of the side channel 'probe' of plugin 'probe'" in text
    assert f"failed in {method} and is detached" in text
    assert failure.error in text
    assert re.search(ANSWERS[how], failure.error)

    steps = len(calls_in(log, "core.message", channel="one-way"))
    assert len(calls_in(log, "worker.on_step", channel="one-way")) == steps > 4
    assert len(calls_in(log, place)) == 2
    assert [c["call"] for c in calls_in(log) if c["call"].startswith(side)][-2:] == [
        place,
        f"{side}.close",
    ]
    lasting = {"core": "core.message", "worker": "worker.on_step"}[other]
    assert len(calls_in(log, lasting)) == steps
    assert len(calls_in(log, f"{other}.close")) == 1


def test_the_worker_half_goes_on_without_messages(log: Path) -> None:
    with launch_probe(log, "probe", options=failing("core.message", "raises")) as engine:
        engine.generate(PROMPTS, PARAMS)
    told = [call["message"] is not None for call in calls_in(log, "worker.on_step")]
    assert told == [True] + [False] * (len(told) - 1)
    assert len(calls_in(log, "worker.reply")) == len(told)
    assert len(calls_in(log, "core.on_reply")) == 1


@pytest.mark.parametrize("place", ["core.close", "worker.close"])
def test_what_close_raises_is_logged(
    log: Path, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    listener = Listener()
    with launch_probe(log, "probe", plugins=[listener], options=failing(place, "raises")) as engine:
        engine.generate(PROMPTS, PARAMS)
    (failure,) = listener.failed
    assert (failure.plugin, failure.action) == ("probe", "logged")
    assert "failed in close: RuntimeError" in caplog.text
    closed = {call["call"] for call in calls_in(log) if call["call"].endswith("close")}
    assert closed == {"core.close", "worker.close"}


@pytest.mark.parametrize(
    "place", ["core.message", "worker.on_step", "worker.reply", "core.on_reply"]
)
def test_an_interrupt_is_no_failure_of_the_half(log: Path, place: str) -> None:
    with launch_probe(log, "probe", options=failing(place, "is interrupted")) as engine:
        with pytest.raises(KeyboardInterrupt):
            engine.generate(PROMPTS, PARAMS)
        with pytest.raises((EngineDeadError, InternalError)):
            engine.generate(PROMPTS, PARAMS)


@pytest.mark.parametrize(
    "place", ["core.message", "worker.on_step", "worker.reply", "core.on_reply"]
)
def test_the_same_in_an_engine_process(log: Path, tokens: list[list[int]], place: str) -> None:
    with launch_probe(
        log, "probe", options=failing(place, "raises"), engine={"process": "separate"}
    ) as engine:
        assert tokens_of(engine.generate(PROMPTS, PARAMS)) == tokens
    assert len(calls_in(log, place)) == 2
    assert len(calls_in(log, "core.close")) == len(calls_in(log, "worker.close")) == 1


def test_a_reply_that_is_not_declared_is_a_failure(log: Path, tokens: list[list[int]]) -> None:
    listener = Listener()
    with launch_probe(log, "talkative", plugins=[listener]) as engine:
        assert tokens_of(engine.generate(PROMPTS, PARAMS)) == tokens
    (failure,) = listener.failed
    assert "gave a ProbeReply, but its channel declares no type for it" in failure.error
    assert (failure.role, failure.action) == ("worker", "detached")


@pytest.mark.parametrize("channels", [(), ("one-way",), ("probe", "one-way")])
def test_a_worker_can_not_pass_for_a_half(
    log: Path,
    tokens: list[list[int]],
    caplog: pytest.LogCaptureFixture,
    channels: tuple[str, ...],
) -> None:
    listener = Listener()
    with launch_probe(log, *channels, plugins=[listener], executor={"worker": "forging"}) as engine:
        assert tokens_of(engine.generate(PROMPTS, PARAMS)) == tokens
    assert listener.failed == []
    (said,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    strangers = sorted({"probe", "one-way", "nobody"} - set(channels))
    assert f"as {strangers}, which engine.side_channels does not name" in said
    replies = calls_in(log, "core.on_reply") + calls_in(log, "core.on_reply", "one-way")
    assert all(reply["replied"] == reply["step"] for reply in replies)


@pytest.mark.parametrize("channels", [(), ("probe",)])
def test_a_result_of_another_form_stops_the_engine(log: Path, channels: tuple[str, ...]) -> None:
    with (
        launch_probe(log, *channels, executor={"worker": "listing"}) as engine,
        pytest.raises(ContractViolation, match="a list as side_channel, no dict") as caught,
    ):
        engine.generate(PROMPTS, PARAMS)
    assert caught.value.plugin


@pytest.mark.parametrize(
    ("channel", "error", "match"),
    [
        ("prob", ProviderNotFoundError, "prob"),
        ("untyped", ContractViolation, "declares no Message"),
        ("odd", ContractViolation, "'probe'.*can not decode its Reply"),
        ("unresolved", ContractViolation, "'probe'.*its Message: NameError: .*Nowhere"),
        ("swapped", ContractViolation, "made a _Worker, no CoreHalf"),
        ("unmakable", ProviderError, "making its WorkerHalf failed: RuntimeError: no worker half"),
    ],
)
def test_what_can_not_be_made_stops_the_start(
    log: Path, channel: str, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        launch_probe(log, "probe", channel)
    # what was made before is closed
    made = {c["call"] for c in calls_in(log)}
    if channel == "prob":
        assert made == set()
    else:
        assert "core.close" in made
    assert ("worker.close" in made) == (channel == "unmakable")
