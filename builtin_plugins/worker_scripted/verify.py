"""Checks every step as a model would feel it: through block tables and a KV cache.

For each token the cache keeps its history (see `rule`), a number that only the right tokens in
the right order give. A step writes those of its tokens where the block tables say, and reads
back all that attention would read. A wrong block table, a block that two requests write, a stale
block or a false prefix hit shows as a wrong number.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from builtin_plugins.worker_scripted.batch import ScriptedBatch
from hookspecs.errors import InternalError
from hookspecs.types.columns import Int64Column
from hookspecs.types.kv import KVCacheConfig
from hookspecs.types.step import BlockColumns, NewRequest, ScheduledRow, SchedulerOutput

__all__ = ["InconsistentStepError", "StepVerifier"]

_GROUP_SALT = 0x9E3779B97F4A7C15
_WEIGHTS_SALT = 0xD1B54A32D192ED03


class InconsistentStepError(InternalError, RuntimeError):
    """A step that the worker was told to run contradicts those before it."""


class StepVerifier:
    """The KV cache and the block tables."""

    def __init__(self, config: KVCacheConfig, batch: ScriptedBatch) -> None:
        self._batch = batch
        self._config = config
        self.pool = np.zeros((config.num_blocks, config.block_size), dtype=np.uint64)
        """uint64 [blocks, block size]: histories, salted with the group."""
        num_slots, max_model_len = batch.token_ids.shape
        max_blocks = -(-max_model_len // config.block_size)
        num_groups = len(config.groups)
        self._tables = np.zeros((num_groups, num_slots, max_blocks), dtype=np.int64)
        self._num_blocks = np.zeros((num_groups, num_slots), dtype=np.int64)
        self._num_computed = np.zeros(num_slots, dtype=np.int64)
        self._weights_salt = 0

    def clear(self) -> None:
        """The cache is empty: what was written before can not be read."""
        self.pool[:] = 0

    def set_offset(self, offset: int) -> None:
        """Other weights (see `weights`): what they write is not what those before did."""
        self._weights_salt = offset * _WEIGHTS_SALT

    def add(self, request: NewRequest) -> None:
        """A request starts in a slot, which must be free."""
        slot = request.slot
        if self._batch.num_tokens[slot]:
            raise InconsistentStepError(
                f"slot {slot}: request {request.request_id!r} starts in it, but the slot was not "
                "released"
            )
        if len(request.block_ids) != len(self._tables):
            raise InconsistentStepError(
                f"slot {slot}: {len(request.block_ids)} block tables for {len(self._tables)} KV "
                "cache groups"
            )
        for group, blocks in enumerate(request.block_ids):
            self._tables[group, slot, : len(blocks)] = blocks
            self._num_blocks[group, slot] = len(blocks)
        self._num_computed[slot] = request.num_computed_tokens

    def append_blocks(self, group: int, blocks: BlockColumns) -> None:
        """Blocks appended to the tables of running requests."""
        for i, slot in enumerate(blocks.slots.tolist()):
            new = blocks.block_ids[blocks.indptr[i] : blocks.indptr[i + 1]]
            have = self._num_blocks[group, slot]
            self._tables[group, slot, have : have + len(new)] = new
            self._num_blocks[group, slot] = have + len(new)

    def run(self, scheduled: SchedulerOutput) -> None:
        """Write the step's tokens, then read: so a row sees what another row overwrote."""
        rows = list(scheduled.rows())
        for row in rows:
            self._check_row(row)
        for row in rows:
            start = row.num_computed_tokens
            end = start + row.num_scheduled_tokens
            for group in range(len(self._tables)):
                at = self._locate(group, row.slot, np.arange(start, end))
                self.pool[at] = self._expected(group, row.slot, start, end)
        for row in rows:
            self._check_cache(row)
            self._num_computed[row.slot] = row.num_computed_tokens + row.num_scheduled_tokens

    def _check_row(self, row: ScheduledRow) -> None:
        slot, start, known = (
            row.slot,
            row.num_computed_tokens,
            int(self._batch.num_tokens[row.slot]),
        )
        end = start + row.num_scheduled_tokens
        if not known:
            raise InconsistentStepError(f"slot {slot}: scheduled, but no request is in it")
        if start > self._num_computed[slot]:
            raise InconsistentStepError(
                f"slot {slot}: the step starts at position {start}, but only "
                f"{self._num_computed[slot]} tokens were computed"
            )
        if not start < end <= known:
            raise InconsistentStepError(
                f"slot {slot}: positions {start} to {end} are scheduled of {known} known tokens"
            )
        if row.samples != (end == known):
            raise InconsistentStepError(
                f"slot {slot}: samples is {row.samples} for a step up to token {end} of {known}"
            )

    def _check_cache(self, row: ScheduledRow) -> None:
        start = row.num_computed_tokens
        end = start + row.num_scheduled_tokens
        for index, group in enumerate(self._config.groups):
            window = group.sliding_window
            first = 0 if window is None else max(0, start - window + 1)
            found = self.pool[self._locate(index, row.slot, np.arange(first, end))]
            wrong = np.flatnonzero(found != self._expected(index, row.slot, first, end))
            if len(wrong):
                position = first + int(wrong[0])
                block = self._tables[index, row.slot, position // self._config.block_size]
                raise InconsistentStepError(
                    f"slot {row.slot}: the KV cache holds something else at position {position} "
                    f"(block {block} of group {index}) than the request's tokens give; "
                    f"{len(wrong)} of {end - first} positions are wrong"
                )

    def _expected(self, group: int, slot: int, start: int, end: int) -> NDArray[np.uint64]:
        salt = np.uint64((_GROUP_SALT * (group + 1) + self._weights_salt) % 2**64)
        return self._batch.histories[slot, start:end] ^ salt

    def _locate(
        self, group: int, slot: int, positions: Int64Column
    ) -> tuple[Int64Column, Int64Column]:
        """Block and offset of positions of a slot."""
        size = self._config.block_size
        columns = positions // size
        have = int(self._num_blocks[group, slot])
        if columns[-1] >= have:
            raise InconsistentStepError(
                f"slot {slot}: its block table of group {group} has {have} blocks of {size} "
                f"tokens, but position {positions[-1]} is used"
            )
        blocks = self._tables[group, slot, columns]
        bad = np.flatnonzero((blocks < 1) | (blocks >= self._config.num_blocks))
        if len(bad):
            raise InconsistentStepError(
                f"slot {slot}: position {positions[bad[0]]} lies in block {blocks[bad[0]]} of "
                f"group {group}; blocks of requests are 1 to {self._config.num_blocks - 1}"
            )
        return blocks, positions % size
