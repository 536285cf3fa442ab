"""The stop chain: its order, and that rows do not touch each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from framework.core.request_table import RequestTable
from framework.core.step_rows import StepRows
from framework.core.stop import check_stops
from hookspecs.types.request import FinishReason

EOS, STOP, OTHER = 7, 8, 9


def check(table: RequestTable, slots: list[int], tokens: list[int]) -> tuple[Any, dict[int, int]]:
    rows = StepRows(table, np.array(slots, np.int32))
    return check_stops(rows, table.num_tokens[slots], np.array(tokens, np.int32))


@pytest.mark.parametrize(
    ("token", "max_tokens", "ignore_eos", "code", "reason"),
    [
        (OTHER, 2, False, -1, None),
        (EOS, 2, False, FinishReason.STOP, None),
        (EOS, 2, True, -1, None),
        (STOP, 2, False, FinishReason.STOP, STOP),
        (OTHER, 1, False, FinishReason.LENGTH, None),
        (EOS, 1, False, FinishReason.STOP, None),
        (STOP, 1, False, FinishReason.STOP, STOP),
        (EOS, 1, True, FinishReason.LENGTH, None),
    ],
)
def test_chain(make_request, token, max_tokens, ignore_eos, code, reason) -> None:
    request = make_request(
        [1, 2],
        max_tokens=max_tokens,
        stop_token_ids=[STOP],
        eos_token_id=None if ignore_eos else EOS,
    )
    table = RequestTable(4)
    slot = table.start(request, 0)
    table.num_tokens[slot] += 1
    codes, reasons = check(table, [slot], [token])
    assert codes.tolist() == [code]
    assert reasons == ({} if reason is None else {0: reason})


def test_the_context_of_the_model_ends_a_request(make_request) -> None:
    table = RequestTable(1)
    slot = table.start(make_request([1, 2], max_tokens=50, max_model_len=3), 0)
    table.num_tokens[slot] += 1
    codes, _ = check(table, [slot], [OTHER])
    assert codes.tolist() == [FinishReason.LENGTH]


def test_rows_are_independent(make_request) -> None:
    table = RequestTable(4)
    requests = [
        make_request([1], eos_token_id=EOS),
        make_request([1], stop_token_ids=[STOP]),
        make_request([1], max_tokens=1),
        make_request([1]),
    ]
    slots = [table.start(request, 0) for request in requests]
    table.num_tokens[slots] += 1
    codes, reasons = check(table, slots, [EOS, STOP, OTHER, EOS])
    assert codes.tolist() == [FinishReason.STOP, FinishReason.STOP, FinishReason.LENGTH, -1]
    assert reasons == {1: STOP}
