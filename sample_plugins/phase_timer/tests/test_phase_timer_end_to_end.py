"""The installed plugin in a real engine, whose worker emits scripted tokens."""

from __future__ import annotations

import logging
from typing import Any

import framework
import pytest
from framework import SamplingParams
from hookspecs.errors import EngineDeadError, StepError

PHASES = ["schedule", "execute_model", "sample_tokens", "update_from_output"]


def config(**plugins: Any) -> dict[str, Any]:
    return {
        "model": {"name": "scripted"},
        "executor": {"worker": "scripted"},
        "engine": {"debug": True},
        "stats": {"loggers": []},
        "plugins": plugins,
    }


def params(**script: Any) -> SamplingParams:
    extensions = {"scripted": script} if script else {}
    return SamplingParams(max_tokens=4, temperature=0, detokenize=False, extensions=extensions)


def rows(caplog: pytest.LogCaptureFixture) -> dict[str, list[str]]:
    (said,) = [r.getMessage() for r in caplog.records if r.name == "framework.phase_timer"]
    assert said.startswith("phases of engine 0, ms:\n")
    return {row.split()[0]: row.split()[1:] for row in said.splitlines()[2:]}


def test_the_table_counts_every_phase_of_every_step(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, "framework"),
        framework.launch(config()) as engine,
    ):
        timed = [list(out.outputs[0].token_ids) for out in engine.generate([[1, 2, 3]], params())]
    found = rows(caplog)
    assert list(found) == PHASES
    assert {row[0] for row in found.values()} == {"4"}, "four tokens take four steps"
    assert {row[1] for row in found.values()} == {"0"}
    with framework.launch(config(block=["phase-timer"])) as engine:
        plain = [list(out.outputs[0].token_ids) for out in engine.generate([[1, 2, 3]], params())]
    assert timed == plain


def test_the_row_of_a_phase_that_fails_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, "framework"),
        framework.launch(config()) as engine,
        pytest.raises((StepError, EngineDeadError), match="scripted"),
    ):
        list(engine.generate([[1, 2, 3]], params(raise_at=1)))
    failed = {phase: int(row[1]) for phase, row in rows(caplog).items()}
    assert sum(failed.values()) == 1
    assert failed["schedule"] == failed["update_from_output"] == 0


def test_an_engine_that_did_nothing_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "framework"), framework.launch(config()):
        pass
    assert not [r for r in caplog.records if r.name == "framework.phase_timer"]
