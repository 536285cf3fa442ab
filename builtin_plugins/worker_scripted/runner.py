"""The model runner of the worker `scripted`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from builtin_plugins.worker_scripted.batch import ScriptedBatch
from builtin_plugins.worker_scripted.options import ScriptedOptions
from builtin_plugins.worker_scripted.pooling import ScriptedPooler
from builtin_plugins.worker_scripted.rule import next_tokens
from builtin_plugins.worker_scripted.sampler_rows import SamplerRows
from builtin_plugins.worker_scripted.script import Script, parse_script
from builtin_plugins.worker_scripted.verify import StepVerifier
from builtin_plugins.worker_scripted.weights import INITIAL_OFFSET
from framework.sdk.logits_processors import LogitsProcessors
from hookspecs.contracts.logits import Sampler
from hookspecs.contracts.worker import ModelRunner
from hookspecs.errors import RequestError, UnsupportedFeatureError
from hookspecs.types.columns import Float32Column, Int32Column
from hookspecs.types.step import (
    GrammarOutput,
    LogprobColumns,
    ModelRunnerOutput,
    NewRequest,
    RowFailure,
    SchedulerOutput,
)

__all__ = ["ScriptedRunner"]

_PLUGIN = "worker-scripted"


class ScriptedRunner(ModelRunner):
    """Worker process, one thread: `execute_model` and `sample_tokens` in turn.

    Rows whose request is plain greedy and has no script cost array operations only.
    """

    def __init__(
        self,
        options: ScriptedOptions,
        batch: ScriptedBatch,
        verifier: StepVerifier | None,
        create_sampler: Callable[[], Sampler],
        processors: LogitsProcessors,
    ) -> None:
        self._vocab_size = options.vocab_size
        self._eos = options.eos_token_id
        self._batch = batch
        self._verifier = verifier
        self._sampled = SamplerRows(create_sampler, processors, options.vocab_size)
        self._pooler = ScriptedPooler(len(batch.num_tokens))
        self._scripts: dict[int, Script] = {}
        self._failed: dict[int, RowFailure] = {}
        """Slots whose request has failed, until they are released."""
        self._special = np.zeros(len(batch.num_tokens), dtype=np.bool_)
        """bool[slots]: has a script, goes through the sampler, or has failed."""
        self._prompt_logprobs: dict[int, int] = {}
        """Slot to the number of alternatives."""
        self._scheduled: SchedulerOutput | None = None
        self._offset = INITIAL_OFFSET

    def execute_model(self, scheduled: SchedulerOutput) -> None:
        """InconsistentStepError when the step can not be right."""
        if scheduled.draft_indptr is not None:
            raise UnsupportedFeatureError("the worker `scripted` does not verify draft tokens")
        for slot in scheduled.released_slots:
            self._remove(slot)
        for request in scheduled.new_requests:
            self._add(request)
        if self._verifier is not None:
            for group, blocks in enumerate(scheduled.new_blocks):
                self._verifier.append_blocks(group, blocks)
            self._verifier.run(scheduled)
        self._scheduled = scheduled

    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        """RuntimeError where a script says so."""
        if grammar is not None:
            raise UnsupportedFeatureError("the worker `scripted` does not apply grammar bitmasks")
        scheduled, self._scheduled = self._scheduled, None
        assert scheduled is not None, "sample_tokens comes after execute_model"
        samples = scheduled.samples
        step_slots = scheduled.slots.astype(np.intp)
        if self._pooler:
            samples = samples & ~self._pooler.pooling[step_slots]
        rows = samples.nonzero()[0]
        slots = step_slots[rows]
        tokens = self._next_tokens(self._batch.last_histories(slots))
        output = ModelRunnerOutput(num_sampled=samples.astype(np.int32), token_ids=tokens)
        if self._pooler:
            output.pooled = self._pooler.pool(scheduled, self._batch.token_ids)
        if self._prompt_logprobs:
            output.prompt_logprobs = self._prompt_pieces(scheduled)
        if np.count_nonzero(self._special[step_slots]):
            given = self._follow_scripts(slots, tokens)
            self._sample(rows, slots, given, output)
            good = ~np.isin(slots, list(self._failed))
            output.num_sampled[rows[~good]] = 0
            output.token_ids = tokens[good]
            output.failures = {
                slot: self._failed[slot]
                for slot in scheduled.slots.tolist()
                if slot in self._failed
            }
        # A failed row gets a token too, since the next step may be scheduled already.
        self._batch.append(slots, tokens)
        return output

    def set_offset(self, offset: int) -> None:
        """Tokens of the default rule are as with these weights from now on."""
        self._offset = offset
        if self._verifier is not None:
            self._verifier.set_offset(offset)

    def _next_tokens(self, histories: NDArray[np.uint64]) -> Int32Column:
        return next_tokens(histories, self._vocab_size, self._eos, self._offset)

    def _add(self, request: NewRequest) -> None:
        slot, params = request.slot, request.sampling_params
        if self._verifier is not None:
            self._verifier.add(request)
        self._batch.add(request)
        if request.pooling is not None:
            self._pooler.add(request, request.pooling)
            return
        try:
            script = parse_script(params, self._vocab_size)
            if script is not None:
                self._scripts[slot] = script
            given = script is not None and script.has_logits
            failure = self._sampled.add(request, given_logits=given)
            if failure is not None:
                self._failed[slot] = failure
        except RequestError as error:
            self._failed[slot] = RowFailure(str(error), plugin=_PLUGIN, poisoned=False)
        # One that resumes after its first output has given those of its prompt.
        resumed = len(request.token_ids) > request.num_prompt_tokens
        if params.prompt_logprobs is not None and not resumed:
            self._prompt_logprobs[slot] = params.prompt_logprobs
        self._special[slot] = any(
            slot in slots for slots in (self._scripts, self._sampled.slots, self._failed)
        )

    def _remove(self, slot: int) -> None:
        self._batch.remove(slot)
        self._special[slot] = False
        self._scripts.pop(slot, None)
        self._failed.pop(slot, None)
        self._prompt_logprobs.pop(slot, None)
        self._sampled.remove(slot)
        self._pooler.remove(slot)

    def _follow_scripts(
        self, slots: NDArray[np.intp], tokens: Int32Column
    ) -> dict[int, Float32Column]:
        """Put scripted tokens into `tokens`, in place; the scripted logits by index."""
        given = {}
        for index in np.flatnonzero(self._special[slots]).tolist():
            slot = int(slots[index])
            script = self._scripts.get(slot)
            if script is None:
                continue
            number = self._batch.num_outputs(slot)
            if number == script.raise_at:
                raise RuntimeError(f"slot {slot}: the script raises at output {number}")
            if number == script.fail_at:
                self._failed[slot] = RowFailure(
                    f"the script fails at output {number}", plugin=_PLUGIN
                )
            token = script.token(number, self._eos)
            row = script.logits_row(number)
            if token is not None:
                tokens[index] = token
            if row is not None:
                given[index] = row
        return given

    def _sample(
        self,
        rows: NDArray[np.intp],
        slots: NDArray[np.intp],
        given: dict[int, Float32Column],
        output: ModelRunnerOutput,
    ) -> None:
        """Put the sampler's tokens, logprobs and failures in place, for its slots."""
        members = self._sampled.slots - self._failed.keys()
        chosen = np.flatnonzero(np.isin(slots, list(members)))
        if not len(chosen):
            return
        placed = {place: given[i] for place, i in enumerate(chosen.tolist()) if i in given}
        sampled = self._sampled.sample(
            slots[chosen].astype(np.int32), output.token_ids[chosen], placed
        )
        for place, failure in sampled.failures.items():
            self._failed[int(slots[chosen[place]])] = failure
        good = ~np.isin(np.arange(len(chosen)), list(sampled.failures))
        output.token_ids[chosen[good]] = sampled.token_ids[good]
        if sampled.logprobs is not None and sampled.logprob_rows is not None:
            output.logprobs = sampled.logprobs
            output.logprob_rows = rows[chosen[sampled.logprob_rows]].astype(np.int32)

    def _prompt_pieces(self, scheduled: SchedulerOutput) -> dict[int, LogprobColumns]:
        """By slot: what the positions computed say of the prompt tokens after them."""
        pieces = {}
        for row in scheduled.rows():
            slot, start = row.slot, row.num_computed_tokens
            last = int(self._batch.num_prompt_tokens[slot]) - 1
            end = min(start + row.num_scheduled_tokens, last)
            if slot in self._prompt_logprobs and (start == 0 or end > start):
                pieces[slot] = self._sampled.prompt_logprobs(
                    self._next_tokens(self._batch.histories[slot, start:end]),
                    self._batch.token_ids[slot, start + 1 : end + 1],
                    self._prompt_logprobs[slot],
                    first=start == 0,
                )
        return pieces
