"""The halves alone: clocks that are told what to say, and a step that was made by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
import pytest
from hookspecs import SamplingParams
from hookspecs.types.step import ModelRunnerOutput, NewRequest, SchedulerOutput

from step_times.core_half import StepTimesCore
from step_times.messages import Kind, Measured, Step
from step_times.options import StepTimesOptions
from step_times.outlets import JsonLines, table
from step_times.report import Report
from step_times.worker_half import StepTimesWorker

OUTPUT = ModelRunnerOutput(num_sampled=np.zeros(0, np.int32), token_ids=np.zeros(0, np.int32))


class Collected:
    """Keeps reports."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.closed = False

    def write(self, report: Report) -> None:
        self.reports.append(report)

    def close(self) -> None:
        self.closed = True


def clock(times: Iterable[float]) -> Any:
    return iter(times).__next__


def scheduled(
    number: int, rows: dict[int, tuple[int, int]], new: dict[int, int] | None = None
) -> SchedulerOutput:
    """`rows`: slot to computed and scheduled tokens; `new`: slot to known tokens."""
    counts = np.array([count for _, count in rows.values()], np.int32)
    return SchedulerOutput(
        step=number,
        slots=np.array(list(rows), np.int32),
        num_scheduled_tokens=counts,
        num_computed_tokens=np.array([computed for computed, _ in rows.values()], np.int32),
        samples=np.ones(len(rows), np.bool_),
        total_num_scheduled_tokens=int(counts.sum()),
        new_requests=[
            NewRequest(
                request_id=str(slot),
                slot=slot,
                token_ids=[0] * known,
                num_prompt_tokens=known,
                num_computed_tokens=rows[slot][0],
                block_ids=([],),
                sampling_params=SamplingParams(),
            )
            for slot, known in (new or {}).items()
        ],
    )


def core(outlet: Collected, times: Iterable[float], every_steps: int = 100) -> StepTimesCore:
    return StepTimesCore(outlet, every_steps=every_steps, max_num_seqs=8, clock=clock(times))


def test_the_worker_measures_from_the_step_to_its_tokens() -> None:
    half = StepTimesWorker(clock([10.0, 10.5, 11.0, 12.0]), clock([1.0, 3.0, 3.0, 3.5]))
    for worker_s, cpu_s in ((0.5, 2.0), (1.0, 0.5)):
        began = scheduled(1, {0: (0, 3)}, {0: 3})
        step = core(Collected(), [0.0]).message(began)
        half.on_step(began, step)
        assert half.reply(began, OUTPUT) == Measured(step=step, worker_s=worker_s, cpu_s=cpu_s)


def test_the_worker_tells_steps_in_flight_apart() -> None:
    half = StepTimesWorker(clock([10.0, 10.5, 11.0, 12.5]), clock([0.0] * 4))
    first, second = scheduled(1, {0: (0, 3)}, {0: 3}), scheduled(2, {0: (3, 1)})
    in_core = core(Collected(), [0.0, 0.0])
    steps = [in_core.message(first), in_core.message(second)]
    half.on_step(first, steps[0])
    half.on_step(second, steps[1])
    replies = [half.reply(first, OUTPUT), half.reply(second, OUTPUT)]
    assert [reply and reply.step for reply in replies] == steps
    assert [reply and reply.worker_s for reply in replies] == [1.0, 2.0]


def test_the_worker_is_silent_when_it_was_told_nothing() -> None:
    half = StepTimesWorker()
    began = scheduled(1, {0: (0, 3)}, {0: 3})
    half.on_step(began, None)
    assert half.reply(began, OUTPUT) is None


def test_a_step_is_known_by_its_tokens() -> None:
    half = core(Collected(), [0.0] * 4)
    steps = [
        half.message(scheduled(1, {0: (0, 5)}, {0: 9})),
        half.message(scheduled(2, {0: (5, 4), 3: (0, 2)}, {3: 2})),
        half.message(scheduled(3, {0: (9, 1), 3: (2, 1)})),
        # slot 0 has another request, which was preempted: 6 tokens known, 4 of them computed
        half.message(scheduled(4, {0: (4, 2), 3: (3, 1)}, {0: 6})),
    ]
    assert [(step.prefill_tokens, step.decode_tokens) for step in steps] == [
        (5, 0),
        (6, 0),
        (0, 2),
        (2, 1),
    ]
    assert [step.kind for step in steps] == [Kind.PREFILL, Kind.PREFILL, Kind.DECODE, Kind.MIXED]
    assert [step.rows for step in steps] == [1, 2, 2, 2]


def replies(half: StepTimesCore, steps: Iterable[tuple[SchedulerOutput, float]]) -> None:
    for step, worker_s in steps:
        told = half.message(step)
        half.on_reply(step, Measured(step=told, worker_s=worker_s, cpu_s=0.0))


def test_what_is_not_the_workers_is_the_cores_and_waiting_is_nobodys() -> None:
    outlet = Collected()
    # sent, replied: 3 s on the way, of which 2 at the worker; 1 s between; idle for 100 s
    half = core(outlet, [10.0, 13.0, 14.0, 17.0, 117.0, 120.0])
    replies(
        half,
        [
            (scheduled(1, {0: (0, 3)}, {0: 3}), 2.0),
            (scheduled(2, {0: (3, 1)}), 2.0),
            (scheduled(3, {0: (0, 3)}, {0: 3}), 2.0),
        ],
    )
    half.close()
    (report,) = outlet.reports
    assert outlet.closed
    assert (report.first_step, report.last_step, report.num_steps) == (1, 3, 3)
    prefill, decode = report.kinds["prefill"], report.kinds["decode"]
    assert (prefill.steps, prefill.worker_s, prefill.core_s) == (2, 4.0, 2.0)
    assert (decode.steps, decode.worker_s, decode.core_s) == (1, 2.0, 2.0)
    assert report.core_share == pytest.approx(4 / 10)
    assert "40.0% of the time in the core" in table(report)
    assert "2000.000" in table(report)


def test_reports_have_so_many_steps_and_the_last_has_the_rest() -> None:
    outlet = Collected()
    half = core(outlet, np.arange(100.0), every_steps=2)
    replies(half, [(scheduled(n, {0: (n, 1)}), 0.5) for n in range(1, 6)])
    assert [(r.first_step, r.last_step) for r in outlet.reports] == [(1, 2), (3, 4)]
    half.close()
    assert [(r.first_step, r.last_step) for r in outlet.reports] == [(1, 2), (3, 4), (5, 5)]


def test_without_steps_there_is_no_report() -> None:
    outlet = Collected()
    core(outlet, []).close()
    assert outlet.reports == [] and outlet.closed


def test_a_report_that_can_not_be_written_is_not_tried_again() -> None:
    full = JsonLines("/dev/full")
    half = StepTimesCore(full, every_steps=1, max_num_seqs=8)
    with pytest.raises(OSError):
        replies(half, [(scheduled(1, {0: (0, 3)}, {0: 3}), 0.1)])
    half.close()


def test_messages_survive_the_way() -> None:
    step = core(Collected(), [1.5]).message(scheduled(1, {0: (0, 3)}, {0: 3}))
    measured = Measured(step=step, worker_s=0.1, cpu_s=0.2)
    for value, kind in ((step, Step), (measured, Measured)):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=kind) == value


@pytest.mark.parametrize(
    "options",
    [{"every_steps": 0}, {"every_steps": 1_000_001}, {"path": ""}, {"every": 1}],
)
def test_options_out_of_bounds_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"every|path"):
        msgspec.convert(options, StepTimesOptions)
