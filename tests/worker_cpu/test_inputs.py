"""A step's rows as tensors: the same for decode steps, prompts, and slots in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from builtin_plugins.worker_cpu.batch import InputBatch
from builtin_plugins.worker_cpu.inputs import attention_metadata, flatten
from hookspecs.types.kv import KVCacheConfig, KVCacheGroup
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.step import NewRequest, SchedulerOutput
from tests.worker_cpu.driver import int32

_SLOTS, _LENGTH, _BLOCK = 6, 40, 4
_CONFIG = KVCacheConfig(
    num_blocks=200, block_size=_BLOCK, groups=(KVCacheGroup((0,)), KVCacheGroup((1,), 8)),
    bytes_per_block=1,
)  # fmt: skip


@given(data=st.data())
def test_tensors_say_where_each_token_lies(data: st.DataObject) -> None:
    batch = InputBatch(_CONFIG, _SLOTS, _LENGTH)
    slots = data.draw(st.permutations(range(_SLOTS)))[: data.draw(st.integers(1, _SLOTS))]
    decode = data.draw(st.booleans())
    ends = [data.draw(st.integers(1, _LENGTH)) for _ in slots]
    counts = [1 if decode else data.draw(st.integers(1, end)) for end in ends]
    tables: dict[int, tuple[list[int], ...]] = {}
    for row, slot in enumerate(slots):
        # More than the tokens need: blocks for tokens to come.
        blocks = [1 + slot * 30 + i for i in range(-(-_LENGTH // _BLOCK))]
        tables[slot] = blocks, [block + 10 for block in blocks]
        batch.add(
            NewRequest(
                request_id=str(slot),
                slot=slot,
                token_ids=[100 * slot + position for position in range(ends[row])],
                num_prompt_tokens=ends[row],
                num_computed_tokens=0,
                block_ids=tables[slot],
                sampling_params=SamplingParams(),
            ),
            runs=True,
        )
    step = SchedulerOutput(
        step=1,
        slots=int32(slots),
        num_scheduled_tokens=int32(counts),
        num_computed_tokens=int32([end - count for end, count in zip(ends, counts, strict=True)]),
        samples=np.ones(len(slots), dtype=np.bool_),
        total_num_scheduled_tokens=sum(counts),
    )
    inputs = flatten(step, batch)
    expected: list[tuple[int, int]] = [
        (slot, position)
        for slot, end, count in zip(slots, ends, counts, strict=True)
        for position in range(end - count, end)
    ]
    assert inputs.positions.tolist() == [position for _, position in expected]
    assert inputs.token_ids.tolist() == [100 * slot + position for slot, position in expected]
    for group, metadata in enumerate(attention_metadata(inputs, batch)):
        assert metadata.seq_lens == metadata.seq_lens_tensor.tolist() == ends
        assert metadata.query_start == metadata.query_start_tensor.tolist()
        assert np.diff(metadata.query_start).tolist() == counts
        assert (metadata.max_query_len, metadata.max_seq_len) == (max(counts), max(ends))
        assert metadata.slot_mapping.tolist() == [
            tables[slot][group][position // _BLOCK] * _BLOCK + position % _BLOCK
            for slot, position in expected
        ]
        wanted: list[Any] = [
            tables[slot][group][: -(-end // _BLOCK)] for slot, end in zip(slots, ends, strict=True)
        ]
        assert list(metadata.block_lists) == wanted
        for row, blocks in zip(metadata.block_tables.tolist(), wanted, strict=True):
            assert row[: len(blocks)] == blocks
