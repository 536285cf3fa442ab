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

from framework.core.request_table import RequestTable
from hookspecs.types.columns import BoolColumn, Int8Column, Int32Column
from hookspecs.types.outputs import NOT_FINISHED
from hookspecs.types.request import FinishReason

__all__ = ["STOP_CHAIN", "check_stops"]

StopCheck = Callable[[RequestTable, Int32Column, Int32Column], BoolColumn]
"""(table, slots, newest token of each) -> rows that stop. `num_tokens` counts the token."""


def end_token(table: RequestTable, slots: Int32Column, tokens: Int32Column) -> BoolColumn:
    """The token is the model's primary end token."""
    result: BoolColumn = table.eos_token_id[slots] == tokens
    return result


def stop_token(table: RequestTable, slots: Int32Column, tokens: Int32Column) -> BoolColumn:
    """The token is one of the request's stop tokens."""
    stops = np.zeros(len(slots), np.bool_)
    for row in np.flatnonzero(table.has_stop_tokens[slots]).tolist():
        stops[row] = int(tokens[row]) in table.at(int(slots[row])).stop_token_ids
    return stops


def length(table: RequestTable, slots: Int32Column, tokens: Int32Column) -> BoolColumn:
    """max_tokens or the context of the model is reached."""
    result: BoolColumn = table.num_tokens[slots] >= table.max_total_tokens[slots]
    return result


STOP_CHAIN: Final[tuple[tuple[StopCheck, FinishReason], ...]] = (
    (end_token, FinishReason.STOP),
    (stop_token, FinishReason.STOP),
    (length, FinishReason.LENGTH),
)


def check_stops(
    table: RequestTable, slots: Int32Column, tokens: Int32Column
) -> tuple[Int8Column, dict[int, int]]:
    """Finish codes int8[rows] (-1: goes on), and row to the stop token that ended it."""
    codes = np.full(len(slots), NOT_FINISHED, np.int8)
    reasons: dict[int, int] = {}
    for check, reason in STOP_CHAIN:
        stops = check(table, slots, tokens) & (codes == NOT_FINISHED)
        if stops.any():
            codes[stops] = reason
            if check is stop_token:
                reasons.update((row, int(tokens[row])) for row in np.flatnonzero(stops).tolist())
    return codes, reasons
