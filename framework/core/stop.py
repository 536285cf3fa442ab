"""Why a request stops after a new token: an ordered chain of checks over columns.

The order matters and is this: the model's end token, a stop token, the length limits. An end
or stop token on the last allowed position therefore counts as `stop`. Before `min_tokens` the
sampler masks end and stop tokens, and the front end does not look for stop strings, so no
check here depends on it. Core process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from framework.core.step_rows import StepRows
from hookspecs.types.columns import BoolColumn, Int8Column, Int32Column
from hookspecs.types.outputs import NOT_FINISHED
from hookspecs.types.request import FinishReason

__all__ = ["STOP_CHAIN", "check_stops"]

StopCheck = Callable[[StepRows, Int32Column, Int32Column], BoolColumn | None]
"""(rows, tokens known of each, newest token of each) -> those that stop; None: none does. The
known tokens count the newest."""


def end_token(rows: StepRows, num_tokens: Int32Column, tokens: Int32Column) -> BoolColumn:
    """The token is the model's primary end token."""
    result: BoolColumn = rows.eos_token_ids == tokens
    return result


def stop_token(rows: StepRows, num_tokens: Int32Column, tokens: Int32Column) -> BoolColumn | None:
    """The token is one of the request's stop tokens."""
    if not rows.stop_token_ids:
        return None
    stops = np.zeros(rows.count, np.bool_)
    for row, stop_token_ids in rows.stop_token_ids.items():
        stops[row] = int(tokens[row]) in stop_token_ids
    return stops


def length(rows: StepRows, num_tokens: Int32Column, tokens: Int32Column) -> BoolColumn:
    """max_tokens or the context of the model is reached."""
    result: BoolColumn = num_tokens >= rows.max_total_tokens
    return result


STOP_CHAIN: Final[tuple[tuple[StopCheck, FinishReason], ...]] = (
    (end_token, FinishReason.STOP),
    (stop_token, FinishReason.STOP),
    (length, FinishReason.LENGTH),
)


def check_stops(
    rows: StepRows, num_tokens: Int32Column, tokens: Int32Column
) -> tuple[Int8Column, dict[int, int]]:
    """Finish codes int8[rows] (-1: goes on), and row to the stop token that ended it."""
    codes = rows.going_on
    reasons: dict[int, int] = {}
    for check, reason in STOP_CHAIN:
        stops = check(rows, num_tokens, tokens)
        if stops is None or not np.count_nonzero(stops):
            continue
        if codes is rows.going_on:
            codes = codes.copy()
        stops = stops & (codes == NOT_FINISHED)
        codes[stops] = reason
        if check is stop_token:
            reasons.update((row, int(tokens[row])) for row in stops.nonzero()[0].tolist())
    return codes, reasons
