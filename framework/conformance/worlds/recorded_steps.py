"""Steps as the kernel makes them, with results as a worker would give: data, to be read again."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from framework.conformance.worlds.makers import PartMaker, kernel_around
from framework.conformance.worlds.workload import play, random_sizes, workload
from framework.core.request import Request
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.step import ModelRunnerOutput, NewRequest, RowFailure, SchedulerOutput

__all__ = ["RecordedStep", "crowded_step", "plain", "recorded_steps"]


class RecordedStep(NamedTuple):
    """One step."""

    scheduled: SchedulerOutput
    output: ModelRunnerOutput


def recorded_steps(make: PartMaker, seed: int) -> list[RecordedStep]:
    """Those of a random workload with preemptions and aborts; some rows fail. At most 8 slots."""
    kernel = kernel_around(make, **random_sizes(seed))
    made: list[SchedulerOutput] = []
    step = kernel.step

    def recorded(fail: Sequence[Request] = ()) -> SchedulerOutput:
        scheduled = step(fail)
        if scheduled.num_rows:
            made.append(copy.deepcopy(scheduled))
        return scheduled

    kernel.step = recorded  # type: ignore[method-assign]
    play(kernel, workload(seed))
    for number, scheduled in enumerate(made):
        scheduled.step = number + 1
    return [RecordedStep(each, _result(each)) for each in made]


def crowded_step(rows: int, prompt: int) -> RecordedStep:
    """One in which so many requests start, each with a prompt of so many tokens."""
    slots = np.arange(rows, dtype=np.int32)
    scheduled = SchedulerOutput(
        step=1,
        slots=slots,
        num_scheduled_tokens=np.full(rows, prompt, dtype=np.int32),
        num_computed_tokens=np.zeros(rows, dtype=np.int32),
        samples=np.ones(rows, dtype=np.bool_),
        total_num_scheduled_tokens=rows * prompt,
        new_requests=[
            NewRequest(
                request_id=f"request-{slot}",
                slot=slot,
                token_ids=list(range(1000, 1000 + prompt)),
                num_prompt_tokens=prompt,
                num_computed_tokens=0,
                block_ids=([slot + 1],),
                sampling_params=SamplingParams(max_tokens=16),
            )
            for slot in range(rows)
        ],
    )
    return RecordedStep(scheduled, _result(scheduled))


def plain(value: Any) -> Any:
    """All that is in a step or a result, to be compared."""
    return msgspec.to_builtins(value, enc_hook=_plain_column)


def _plain_column(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [str(value.dtype), value.tolist()]
    raise NotImplementedError(f"a step holds {type(value).__name__}")


def _result(scheduled: SchedulerOutput) -> ModelRunnerOutput:
    num_sampled = scheduled.samples.astype(np.int32)
    failures = {}
    if scheduled.step % 7 == 3:
        num_sampled[0] = 0
        failures[int(scheduled.slots[0])] = RowFailure("it went wrong")
    count = int(num_sampled.sum())
    return ModelRunnerOutput(
        num_sampled=num_sampled,
        token_ids=np.arange(count, dtype=np.int32),
        failures=failures,
    )
