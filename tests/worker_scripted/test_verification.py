"""Steps that contradict what was computed before are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hookspecs.errors import InternalError

Drive = Callable[..., Any]

PROMPT = [5, 6, 7, 8, 9]


def _started(drive: Drive, **options: Any) -> Any:
    """Slot 0 holds PROMPT in blocks 1 and 2, computed."""
    worker = drive(**options)
    worker.step((0, 5, 0, True), new=[worker.request(0, PROMPT, [1, 2])])
    return worker


def _fails(message: str) -> Any:
    return pytest.raises(InternalError, match=message)


def test_the_error_is_a_runtime_error(drive: Drive) -> None:
    with pytest.raises(RuntimeError):
        drive().step((0, 1, 0, True))


def test_a_block_overwritten_by_another_request(drive: Drive) -> None:
    worker = _started(drive)
    worker.step((1, 2, 0, True), new=[worker.request(1, [3, 4], [1])])
    with _fails(r"slot 0: .*position 0 \(block 1 of group 0\)"):
        worker.step((0, 1, 5, True))


def test_two_rows_that_write_one_block_in_one_step(drive: Drive) -> None:
    worker = drive()
    new = [worker.request(0, [3, 4], [1]), worker.request(1, [5, 4], [1])]
    with _fails("slot 0: .*position 0"):
        worker.step((0, 2, 0, True), (1, 2, 0, True), new=new)


def test_a_prefix_hit_on_the_right_block(drive: Drive) -> None:
    worker = _started(drive)
    prompt = [*PROMPT[:4], 3, 3]
    out = worker.step((1, 2, 4, True), new=[worker.request(1, prompt, [1, 3], computed=4)])
    assert out.token_ids.tolist() == worker.rule(prompt, 1)


@pytest.mark.parametrize(
    ("prompt", "block"),
    [([*PROMPT[:3], 1, 3], 1), ([5, 6, 7, 8, 3], 9), ([6, 5, 7, 8, 3], 1)],
)
def test_false_prefix_hits(drive: Drive, prompt: list[int], block: int) -> None:
    worker = _started(drive)
    with _fails("slot 1: .*position"):
        worker.step((1, 1, 4, True), new=[worker.request(1, prompt, [block, 3], computed=4)])


def test_a_prefix_hit_on_equal_tokens_after_another_prefix(drive: Drive) -> None:
    """The second blocks hold the same tokens, but not the same context."""
    worker = drive()
    worker.step((0, 9, 0, True), new=[worker.request(0, [1] * 4 + [3] * 5, [1, 2, 3])])
    request = worker.request(1, [2] * 4 + [3] * 5, [4, 2, 5], computed=8)
    worker.step((2, 5, 0, True), new=[worker.request(2, [2] * 4 + [4], [4, 6])])
    with _fails("slot 1: .*position 4 .block 2"):
        worker.step((1, 1, 8, True), new=[request])


def test_a_stale_block_after_release(drive: Drive) -> None:
    worker = _started(drive)
    worker.step((1, 3, 0, True), new=[worker.request(1, [1, 1, 1], [1])], released=[0])
    with _fails("slot 0: .*position 0"):
        worker.step((0, 1, 4, True), new=[worker.request(0, PROMPT, [1, 2], computed=4)])


def test_swapped_blocks(drive: Drive) -> None:
    worker = drive()
    worker.step((0, 8, 0, True), new=[worker.request(0, [*range(8)], [1, 2])])
    request = worker.request(1, [*range(9)], [2, 1, 3], computed=8)
    with _fails("8 of 9 positions are wrong"):
        worker.step((1, 1, 8, True), new=[request])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((0, 1, 6, True), "only 5 tokens were computed"),
        ((0, 2, 5, True), "of 6 known tokens"),
        ((0, 1, 5, False), "samples is False"),
        ((0, 1, 4, True), "samples is True"),
        ((3, 1, 0, True), "slot 3: .*no request"),
    ],
)
def test_rows_that_do_not_fit_the_request(
    drive: Drive, row: tuple[int, int, int, bool], message: str
) -> None:
    with _fails(message):
        _started(drive).step(row)


def test_blocks_that_are_missing_null_or_out_of_the_pool(drive: Drive) -> None:
    for blocks, message in [([1], "has 1 blocks"), ([1, 0], "block 0"), ([1, 32], "block 32")]:
        worker = drive()
        with _fails(f"slot 0: .*{message}"):
            worker.step((0, 5, 0, True), new=[worker.request(0, PROMPT, blocks)])


def test_a_slot_that_was_not_released(drive: Drive) -> None:
    worker = _started(drive)
    with _fails("slot 0: .*not released"):
        worker.step((0, 1, 0, True), new=[worker.request(0, [1], [3])])
    with _fails("no request"):
        worker = _started(drive)
        worker.step((0, 1, 5, True), released=[0])


def test_recomputing_earlier_positions_is_allowed(drive: Drive) -> None:
    worker = _started(drive)
    expected = worker.rule(PROMPT, 2)
    worker.step((0, 2, 2, False))
    assert worker.step((0, 2, 4, True)).token_ids.tolist() == expected[1:]


def test_windows_read_only_what_attention_reads(drive: Drive) -> None:
    """With a window of 3, position 8 reads positions 6 to 8: block 1 may be anyone's."""
    worker = drive(windows=[3], sliding_window=3)
    prompt = [*range(8)]
    worker.step((0, 8, 0, True), new=[worker.request(0, prompt, [1, 2, 3])])
    worker.step((1, 4, 0, True), new=[worker.request(1, [9] * 4, [1])])
    out = worker.step((0, 1, 8, True))
    assert out.token_ids.tolist() == worker.rule(prompt, 2)[1:]
    worker.step((2, 4, 0, True), new=[worker.request(2, [9] * 4, [2])])
    with _fails("position 7"):
        worker.step((0, 1, 9, True))


def test_null_blocks_before_the_window_of_a_prefix_hit(drive: Drive) -> None:
    worker = drive(windows=[3], sliding_window=3)
    prompt = [*range(9)]
    worker.step((0, 8, 0, False), new=[worker.request(0, prompt, [1, 2])])
    out = worker.step((1, 1, 8, True), new=[worker.request(1, prompt, [0, 2, 4], computed=8)])
    assert out.token_ids.tolist() == worker.rule(prompt, 1)


def test_groups_have_tables_of_their_own(drive: Drive) -> None:
    worker = drive(windows=[None, 3], num_groups=2, sliding_window=3)
    request = worker.request(0, PROMPT, tables=[[1, 2], [3, 4]])
    worker.step((0, 5, 0, True), new=[request])
    worker.step((0, 1, 5, True))
    worker.step((0, 1, 6, True))
    worker.step((0, 1, 7, True))
    out = worker.step((0, 1, 8, True), blocks=[{0: [5]}, {0: [6]}])
    assert out.token_ids.tolist() == worker.rule(PROMPT, 5)[4:]
    with _fails("group 1"):
        worker.step((1, 5, 0, True), new=[worker.request(1, PROMPT, tables=[[7, 8], [9]])])


def test_a_block_of_one_group_is_not_one_of_another(drive: Drive) -> None:
    worker = drive(windows=[None, 3], num_groups=2, sliding_window=3)
    with _fails("position 0"):
        worker.step((0, 4, 0, True), new=[worker.request(0, [1, 2, 3, 4], tables=[[1], [1]])])


def test_a_request_with_too_few_tables(drive: Drive) -> None:
    worker = drive(windows=[None, 3], num_groups=2, sliding_window=3)
    with _fails("1 block tables for 2"):
        worker.step((0, 1, 0, True), new=[worker.request(0, [1], [1])])
