"""The worker's thread may be a second one of the core process; observers stay in the first."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from hookspecs.errors import ProviderError
from tests.core.scripted import tokens_of
from tests.side_channels.launches import PARAMS, PROMPTS, expected, launch_probe
from tests.side_channels.probe import calls_in
from tests.side_channels.threaded import Threaded

HOOK = "register_side_channels"
THREADED = {"name": "threaded", "worker": "scripted"}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_calls_of_both_threads_are_counted(log: Path) -> None:
    with launch_probe(log, "probe", "one-way", plugins=[Threaded()], executor=THREADED) as engine:
        before = {report.name: report for report in engine.plugins()}["probe"].calls[HOOK]
        assert tokens_of(engine.generate(PROMPTS, PARAMS)) == expected()
        after = {report.name: report for report in engine.plugins()}["probe"]
    steps = len(calls_in(log, "core.message"))
    assert after.calls[HOOK] - before == 7 * steps > 0
    assert after.errors[HOOK] == 0
    assert after.seconds[HOOK] > 0


@pytest.mark.parametrize(
    ("place", "action"),
    [
        *((place, "detached") for place in ("worker.on_step", "worker.reply")),
        *((place, "detached") for place in ("core.message", "core.on_reply")),
        ("worker.close", "logged"),
        ("core.close", "logged"),
    ],
)
def test_observers_hear_of_failures_in_the_main_thread(log: Path, place: str, action: str) -> None:
    threaded = Threaded()
    options = {"fail_in": place, "fail_how": "raises"}
    with launch_probe(
        log, "probe", "one-way", plugins=[threaded], options=options, executor=THREADED
    ) as engine:
        assert tokens_of(engine.generate(PROMPTS, PARAMS)) == expected()
        told = len(threaded.told)
    ((failure, thread),) = threaded.told
    assert told == (0 if place.endswith("close") else 1)
    assert thread is threading.current_thread()
    assert (failure.plugin, failure.action) == ("probe", action)
    assert failure.role == place.split(".")[0]
    (report,) = [each for each in engine.plugins() if each.name == "probe"]
    assert report.errors[HOOK] == 1


def test_a_failure_is_told_before_the_step_ends(log: Path) -> None:
    threaded = Threaded()
    options = {"fail_in": "worker.on_step", "fail_how": "raises"}
    with launch_probe(
        log, "probe", plugins=[threaded], options=options, executor=THREADED
    ) as engine:
        engine.engine.add_request("a", PROMPTS[0], PARAMS)
        engine.engine.step()
        assert threaded.told == []
        engine.engine.step()
        assert len(threaded.told) == 1


def test_a_start_that_fails_tells_it_too(log: Path) -> None:
    threaded = Threaded()
    options = {"fail_in": "worker.close", "fail_how": "raises"}
    with pytest.raises(ProviderError, match="no worker half today"):
        launch_probe(
            log,
            "probe",
            "unmakable",
            plugins=[threaded],
            options=options,
            executor=THREADED,
        )
    ((failure, thread),) = threaded.told
    assert (failure.action, thread) == ("logged", threading.current_thread())
