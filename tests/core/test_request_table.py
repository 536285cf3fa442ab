"""The only place where a request changes state, and what it refuses."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framework.core.request_table import RequestTable
from hookspecs.errors import ContractViolation
from hookspecs.types.request import FinishReason, RequestStatus


def test_a_request_from_start_to_end(make_request) -> None:
    table = RequestTable(2)
    request = make_request([1, 2, 3])
    slot = table.start(request, 2)
    assert (request.slot, request.status) == (slot, RequestStatus.RUNNING)
    assert table.num_tokens[slot] == 3
    assert table.num_computed_tokens[slot] == 2
    assert table.at(slot) is request
    table.preempt(request)
    assert (request.slot, request.status) == (-1, RequestStatus.PREEMPTED)
    assert request.num_preemptions == 1
    table.start(request, 0)
    table.end(request, FinishReason.STOP, None)
    assert request.finished
    assert table.num_free_slots == 2
    assert table.take_released() == [slot, slot]
    assert table.take_released() == []


def test_slots_are_the_smallest_free_ones(make_request) -> None:
    table = RequestTable(3)
    requests = [make_request() for _ in range(3)]
    assert [table.start(request, 0) for request in requests] == [0, 1, 2]
    table.preempt(requests[2])
    table.preempt(requests[0])
    assert table.start(requests[2], 0) == 0


@pytest.mark.parametrize("computed", [-1, 3, 4])
def test_the_last_token_is_always_computed(make_request, computed: int) -> None:
    with pytest.raises(ContractViolation, match="at least the last token"):
        RequestTable(1).start(make_request([1, 2, 3]), computed)


def test_a_running_request_can_not_start_again(make_request) -> None:
    table = RequestTable(2)
    request = make_request()
    table.start(request, 0)
    with pytest.raises(ContractViolation, match="RUNNING"):
        table.start(request, 0)


def test_no_start_without_a_free_slot(make_request) -> None:
    table = RequestTable(1)
    table.start(make_request(), 0)
    with pytest.raises(ContractViolation, match="free slot"):
        table.start(make_request(), 0)


def test_a_waiting_request_can_not_be_preempted(make_request) -> None:
    with pytest.raises(ContractViolation, match="WAITING"):
        RequestTable(1).preempt(make_request())


def test_a_finished_request_is_not_finished_twice(make_request) -> None:
    table = RequestTable(1)
    request = make_request()
    table.finish(request, FinishReason.TIMEOUT, "late")
    assert [pending.reason for pending in table.take_pending_finishes()] == [FinishReason.TIMEOUT]
    table.end(request, FinishReason.TIMEOUT, "late")
    table.finish(request, FinishReason.TIMEOUT, "late")
    assert table.take_pending_finishes() == []


def test_an_empty_slot_names_itself() -> None:
    with pytest.raises(KeyError, match="slot 1"):
        RequestTable(2).at(1)


def test_rows_are_those_of_the_requests_that_run_now(make_request) -> None:
    """Also if one ends and another takes its slot before the next step."""
    table = RequestTable(2)
    first, second = make_request(max_tokens=3, stop_token_ids=[5]), make_request()
    slots = np.array([table.start(first, 0), table.start(second, 0)], np.int32)
    assert table.find_rows(slots) is None
    rows = table.keep_rows(slots)
    assert table.find_rows(slots.copy()) is rows
    for other in (slots[::-1].copy(), slots[:1]):
        assert table.find_rows(other) is None
    table.end(first, FinishReason.STOP, None)
    assert table.find_rows(slots) is None
    third = make_request(max_tokens=5)
    assert table.start(third, 0) == slots[0]
    assert table.find_rows(slots) is None
    rows = table.keep_rows(slots)
    assert rows.handles.tolist() == [third.wire.handle, second.wire.handle]
    assert rows.max_total_tokens.tolist() == [3 + 5, 3 + 8]
    assert rows.stop_token_ids == {}
    assert rows.output_token_ids[0] is third.output_token_ids
    table.preempt(third)
    table.start(third, 0)
    assert table.find_rows(slots) is None


@given(seed=st.integers(0, 2**32), ask=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_tokens_are_charged_once_whenever_somebody_asks(make_request, seed: int, ask: bool) -> None:
    """The counts are those of a ledger that is told of each step; `ask`: also between steps."""
    choices, table = random.Random(seed), RequestTable(3)
    waiting, running, expected = [], [], dict.fromkeys("ab", 0)
    paid: dict[str, int] = {}
    for _ in range(40):
        action = choices.choice(["add", "start", "step", "step", "preempt", "end"])
        if action == "add":
            request = make_request([1] * 8, tenant=choices.choice("ab"))
            table.enter(request)
            waiting.append(request)
        elif action == "start" and waiting and table.num_free_slots:
            request = waiting.pop(choices.randrange(len(waiting)))
            cached = choices.randrange(4)
            table.start(request, cached)
            paid[request.request_id] = max(paid.get(request.request_id, 0), cached)
            running.append(request)
        elif action == "step" and running:
            slots = np.array([each.slot for each in running], np.int32)
            table.advance(slots, np.ones(len(slots), np.int32))
            for each in running:
                computed = int(table.num_computed_tokens[each.slot])
                before = paid[each.request_id]
                expected[each.tenant] += max(0, computed - before)
                paid[each.request_id] = max(before, computed)
        elif action in ("preempt", "end") and running:
            request = running.pop(choices.randrange(len(running)))
            if action == "preempt":
                table.preempt(request)
                waiting.append(request)
            else:
                table.end(request, FinishReason.STOP, None)
                table.leave(request)
        if ask:
            assert {name: table.tenant_ledger.served(name) for name in "ab"} == expected
    assert {name: table.tenant_ledger.served(name) for name in "ab"} == expected
