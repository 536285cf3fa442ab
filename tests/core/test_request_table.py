"""The only place where a request changes state, and what it refuses."""

from __future__ import annotations

import pytest

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
