"""The model runner. Worker process, one thread."""

from __future__ import annotations

from collections import deque

import numpy as np
from hookspecs.contracts.worker import ModelRunner
from hookspecs.errors import UnsupportedFeatureError
from hookspecs.types.step import (
    GrammarOutput,
    ModelRunnerOutput,
    NewRequest,
    RowFailure,
    SchedulerOutput,
)

from ngram_runner.choice import choose, uniform, unsupported
from ngram_runner.counts import NgramCounts

__all__ = ["NgramRunner"]


class _Row:
    """A request in its slot: the tokens that its next one depends on, and how it is chosen."""

    def __init__(self, request: NewRequest, order: int, engine_seed: int) -> None:
        params = request.sampling_params
        self.params = params
        # Copied: the list is the kernel's.
        self._context = deque(request.token_ids, maxlen=order - 1)
        self._num_outputs = len(request.token_ids) - request.num_prompt_tokens
        ends = {*(params.stop_token_ids or ()), request.eos_token_id}
        self._ends = frozenset(token for token in ends if token is not None)
        self._key = (
            f"{engine_seed}:{request.request_id}" if params.seed is None else str(params.seed)
        )
        lacking = unsupported(params)
        self.failure = (
            _failure(f"the worker 'ngram' does not support {', '.join(lacking)}; leave it out")
            if lacking
            else None
        )

    def next_token(self, counts: NgramCounts) -> int | None:
        """The next token, which counts as known from now on. None if nothing may be chosen: then
        there is a failure."""
        early = self._num_outputs < self.params.min_tokens
        token = choose(
            counts.following(list(self._context)),
            self.params,
            banned=self._ends if early else frozenset(),
            number=0.0 if self.params.greedy else uniform(self._key, self._num_outputs),
        )
        if token is None:
            self.failure = _failure(
                "allowed_token_ids and min_tokens leave no token of the text; allow more of them"
            )
        else:
            self._context.append(token)
            self._num_outputs += 1
        return token


class NgramRunner(ModelRunner):
    """There is no forward: the context of a row are its last tokens, not what was computed for
    them. So it makes no difference in how many steps a prompt comes, how much of it was cached,
    or whether the request was preempted in between."""

    def __init__(self, counts: NgramCounts, engine_seed: int) -> None:
        """`engine_seed`: for requests that have none."""
        self._counts = counts
        self._engine_seed = engine_seed
        self._rows: dict[int, _Row] = {}
        """By slot."""
        self._scheduled: SchedulerOutput | None = None

    def execute_model(self, scheduled: SchedulerOutput) -> None:
        """Block tables are not looked at."""
        if scheduled.draft_indptr is not None:
            raise UnsupportedFeatureError("the worker 'ngram' does not verify draft tokens")
        for slot in scheduled.released_slots:
            self._rows.pop(slot, None)
        for request in scheduled.new_requests:
            self._rows[request.slot] = _Row(request, self._counts.order, self._engine_seed)
        self._scheduled = scheduled

    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        """A refused request fails in its first step, also if that is only a part of its prompt."""
        if grammar is not None:
            raise UnsupportedFeatureError("the worker 'ngram' does not apply grammar bitmasks")
        scheduled, self._scheduled = self._scheduled, None
        if scheduled is None:
            raise RuntimeError("sample_tokens was called without execute_model before it")
        num_sampled = np.zeros(scheduled.num_rows, np.int32)
        tokens: list[int] = []
        failures: dict[int, RowFailure] = {}
        for index, (slot, _, _, samples) in enumerate(scheduled.rows()):
            row = self._rows[slot]
            if samples and row.failure is None:
                token = row.next_token(self._counts)
                if token is not None:
                    num_sampled[index] = 1
                    tokens.append(token)
            if row.failure is not None:
                failures[slot] = row.failure
        return ModelRunnerOutput(
            num_sampled=num_sampled, token_ids=np.array(tokens, np.int32), failures=failures
        )


def _failure(message: str) -> RowFailure:
    """There is no KV that could be wrong."""
    return RowFailure(message, plugin="ngram", poisoned=False)
