"""`OutputProcessor`: columns of a step's outputs to the outputs that users get.

Front-end process, one thread. One pass over the rows of all bundles that are there, then one
output for each request that has news: when the front end is behind, the cost of an output is
shared by the tokens in it. An error in one request (a decoder, a plugin's filter) ends that
request and no other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from framework.frontend.logprobs import decode_prompt
from framework.frontend.output_batch import NO_OUTPUTS, OutputBatch, ProcessedOutputs
from framework.frontend.processed_request import ProcessedRequest
from framework.frontend.request_state import OutputState, RequestGroup
from framework.frontend.tokenizer import Tokenizer
from framework.plugins.calls import Calls
from framework.plugins.failure import describe
from hookspecs.errors import InvalidRequestError, RequestFailedError
from hookspecs.events import OutputReady
from hookspecs.types.outputs import NOT_FINISHED, EngineCoreOutputs, RequestOutput
from hookspecs.types.request import FinishReason
from hookspecs.types.stats import IterationStats

__all__ = ["OutputProcessor", "id_in_use"]

logger = logging.getLogger(__name__)

_STOP: Final = int(FinishReason.STOP)
_ROWS_AN_OUTPUT: Final = 8
"""To take a row costs about an eighth of what an output and its delivery cost."""


class OutputProcessor:
    """Keeps the state of every request from `add` to its end, and nothing after it."""

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        *,
        calls: Calls,
        tracing: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wall_clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`tracing`: whether `traces` are made of requests that end. `wall_clock_ns`: nanoseconds
        since 1970."""
        self._tokenizer = tokenizer
        self._calls = calls
        self._tracing = tracing
        self._clock = clock
        self._wall_clock_ns = wall_clock_ns
        self._states: dict[int, OutputState] = {}
        """By handle."""
        self._groups: dict[str, RequestGroup] = {}
        """By the user's id."""

    @property
    def num_requests(self) -> int:
        """User requests that have not ended."""
        return len(self._groups)

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._groups

    def add(self, request: ProcessedRequest) -> None:
        """Expect outputs of a request. InvalidRequestError if its id is in use."""
        if request.request_id in self._groups:
            raise id_in_use(request.request_id)
        group = RequestGroup(request, self._tokenizer)
        self._groups[request.request_id] = group
        for state in group.outputs:
            self._states[state.request.handle] = state

    def process(self, outputs: EngineCoreOutputs) -> ProcessedOutputs:
        """Apply one bundle. Rows of requests that ended here before are ignored."""
        silent = 0 if outputs.finished_handles is None else len(outputs.finished_handles)
        (processed,) = self.process_parts([outputs], max(1, len(outputs.handles) + silent))
        return processed

    def process_parts(
        self, bundles: Iterable[EngineCoreOutputs], max_outputs: int
    ) -> Iterator[ProcessedOutputs]:
        """Apply bundles in their order, and make at most `max_outputs` outputs at a time; between
        two parts the caller may do other things, also abort requests. All parts have the same
        `iterations`, which are complete with the last. A request has one output for all bundles,
        as long as their rows are not too many for one part."""
        batch = OutputBatch()
        room = max_rows = _ROWS_AN_OUTPUT * max_outputs
        for outputs in bundles:
            batch.begin(outputs, self._clock())
            tokens, at = outputs.token_ids.tolist(), 0
            columns = (outputs.handles, outputs.num_tokens, outputs.finish_codes)
            rows = zip(*[column.tolist() for column in columns], strict=True)
            for row, (handle, count, code) in enumerate(rows):
                if not room:
                    yield from self._results(batch, max_outputs)
                    room = max_rows
                room -= 1
                state = self._states.get(handle)
                token_ids = tokens[at : at + count]
                at += count
                if state is None or state.finish_reason is not None:
                    continue
                try:
                    self._take_row(state, row, token_ids, code, batch)
                except KeyboardInterrupt:
                    raise
                except BaseException as error:
                    self._fail(state.group, error, batch)
            if outputs.finished_handles is not None:
                self._end_silent(outputs.finished_handles.tolist(), batch)
        yield from self._results(batch, max_outputs)

    def abort(self, request_ids: Iterable[str]) -> ProcessedOutputs:
        """End requests by the user's id, all n outputs of each; unknown ids are ignored.

        The result holds a last output a request, with finish reason `abort`, and the handles
        that the engine core must be told."""
        batch = OutputBatch()
        batch.begin(NO_OUTPUTS, self._clock())
        for request_id in dict.fromkeys(request_ids):
            group = self._groups.get(request_id)
            if group is None:
                continue
            for state in group.outputs:
                if state.finish_reason is None:
                    batch.end_here(state, FinishReason.ABORT)
                    self._give_up(state, batch)
        (processed,) = self._results(batch, max(1, len(batch.changed)))
        return processed

    def _take_row(
        self,
        state: OutputState,
        row: int,
        token_ids: list[int],
        code: int,
        batch: OutputBatch,
    ) -> None:
        outputs, group = batch.outputs, state.group
        if batch.has_facts:
            self._take_facts(state, row, batch)
        hidden = 0
        if code == _STOP and token_ids:
            hidden = 0 if state.request.sampling_params.include_stop_str_in_output else 1
        before = len(state.token_ids)
        try:
            stop = state.take(token_ids, batch.positions(row), hidden)
        finally:
            # Also when it raises: what the record of the request counts is in the totals.
            self._count_tokens(state, before, batch)
        if stop is not None:
            if code == NOT_FINISHED:
                batch.end_here(state, FinishReason.STOP)
            self._finish(state, FinishReason.STOP, batch, stop_reason=stop)
        elif code != NOT_FINISHED:
            stop_token = outputs.stop_reasons.get(row)
            if stop_token in group.processed.model_end_tokens:
                stop_token = None
            self._finish(
                state,
                FinishReason(code),
                batch,
                stop_reason=stop_token,
                error=outputs.errors.get(row),
            )
            if row in outputs.refused:
                self._refuse(group, outputs.errors.get(row, ""), batch)
        elif token_ids and group.early:
            batch.mark(state)

    def _take_facts(self, state: OutputState, row: int, batch: OutputBatch) -> None:
        outputs, group = batch.outputs, state.group
        state.num_preemptions = outputs.num_preemptions.get(row, state.num_preemptions)
        prefill = outputs.prefills.get(row)
        if prefill is not None:
            state.prefill = prefill
            batch.iteration.num_prompt_tokens += prefill.num_prompt_tokens
            batch.iteration.num_cached_tokens += prefill.num_cached_tokens
            if group.num_cached_tokens is None:
                group.num_cached_tokens = prefill.num_cached_tokens
        pieces = outputs.prompt_logprobs.get(row)
        if pieces is not None and group.prompt_logprobs is None:
            group.prompt_logprobs = decode_prompt(
                pieces, state.tokenizer, state.request.prompt_token_ids
            )
        group.embedding = outputs.pooled.get(row)

    def _count_tokens(self, state: OutputState, before: int, batch: OutputBatch) -> None:
        count = len(state.token_ids) - before
        if not count:
            return
        now, iteration = batch.outputs.timestamp, batch.iteration
        iteration.num_generation_tokens += count
        if before == 0:
            state.first_token_at = now
            state.first_token_latency = iteration.timestamp - state.request.arrival_time
            iteration.time_to_first_token.append(state.first_token_latency)
            if state.group.first is None:
                state.group.first = state
        else:
            # Tokens that come together share the time since those before.
            latency = (now - state.last_token_at) / count
            iteration.inter_token_latency.extend([latency] * count)
        state.last_token_at = state.group.last_token_at = now

    def _finish(
        self,
        state: OutputState,
        reason: FinishReason,
        batch: OutputBatch,
        *,
        stop_reason: int | str | None = None,
        error: str | None = None,
    ) -> None:
        if state.watched and state.detokenizer is not None and not isinstance(stop_reason, str):
            late_stop = state.detokenizer.finish()
            if late_stop is not None and reason in (FinishReason.STOP, FinishReason.LENGTH):
                reason, stop_reason = FinishReason.STOP, late_stop
        state.finish(reason, stop_reason, error)
        batch.mark(state)

    def _give_up(self, state: OutputState, batch: OutputBatch) -> None:
        try:
            self._finish(state, FinishReason.ABORT, batch)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._fail(state.group, error, batch)

    def _end_silent(self, handles: list[int], batch: OutputBatch) -> None:
        """Requests that left the engine core without a row: their callers must not wait."""
        for handle in handles:
            state = self._states.get(handle)
            if state is not None and state.finish_reason is None:
                self._give_up(state, batch)

    def _fail(self, group: RequestGroup, error: BaseException, batch: OutputBatch) -> None:
        """End what still runs of a request with an error."""
        request_id = group.processed.request_id
        logger.error("request %r failed in the front end", request_id, exc_info=error)
        self._end_rest(group, shown(error), batch)

    def _refuse(self, group: RequestGroup, why: str, batch: OutputBatch) -> None:
        """The engine core has not taken one of a request's outputs: it can be made again as long
        as nothing of it was given."""
        if not group.any_given:
            batch.refused[group.processed.request_id] = why
            self._end_rest(group, why, batch)

    def _end_rest(self, group: RequestGroup, error: str, batch: OutputBatch) -> None:
        for state in group.outputs:
            if state.finish_reason is None:
                batch.end_here(state, FinishReason.ERROR)
                state.finish(FinishReason.ERROR, error=error)
                batch.mark(state)

    def _results(self, batch: OutputBatch, max_outputs: int) -> Iterator[ProcessedOutputs]:
        """What has been gathered, but for the records, which go on."""
        changed = list(batch.changed.items())
        for at in range(0, max(1, len(changed)), max_outputs):
            yield self._result(changed[at : at + max_outputs], batch)
        batch.changed = {}

    def _result(
        self, changed: Sequence[tuple[RequestGroup, IterationStats]], batch: OutputBatch
    ) -> ProcessedOutputs:
        request_outputs, refused = [], {}
        for group, iteration in changed:
            request_id = group.processed.request_id
            if self._groups.get(request_id) is not group:
                continue  # it was aborted between two parts, and has had its last output
            output = self._output(group, batch)
            if output is not None:
                request_outputs.append(output)
            group.changed.clear()
            self._forget_ended(group, iteration, batch)
            if request_id in batch.refused:
                refused[request_id] = batch.refused.pop(request_id)
        ended_here, batch.ended_here = batch.ended_here, {}
        traces, batch.traces = batch.traces, []
        return ProcessedOutputs(
            request_outputs=request_outputs,
            refused=refused,
            ended_here=ended_here,
            iterations=batch.iterations,
            traces=traces,
        )

    def _output(self, group: RequestGroup, batch: OutputBatch) -> RequestOutput | None:
        """What the user gets, after the filters; if that fails, an output that says so."""
        changed = list(group.changed.values())
        try:
            output = group.output()
            if output is None or not self._calls.has_output_filters:
                return output
            kind = group.processed.params.output_kind
            return self._calls.adjust_output(OutputReady(output=output, output_kind=kind)).output
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._fail(group, error, batch)
            for state in changed:
                state.finish_reason, state.error = FinishReason.ERROR, shown(error)
            return group.error_output(shown(error))

    def _forget_ended(
        self, group: RequestGroup, iteration: IterationStats, batch: OutputBatch
    ) -> None:
        """Record the outputs that have ended, once each, and drop their state."""
        if group.num_running == len(group.outputs):
            return
        for state in group.outputs:
            handle = state.request.handle
            if state.finish_reason is not None and handle in self._states:
                stats = state.finished_stats(iteration.timestamp)
                iteration.finished.append(stats)
                if self._tracing:
                    batch.traces.append(state.trace(stats, self._wall_clock_ns()))
                del self._states[handle]
        if group.finished:
            del self._groups[group.processed.request_id]


def id_in_use(request_id: str) -> InvalidRequestError:
    """The error for a second request of one id."""
    return InvalidRequestError(
        f"request_id {request_id!r} is in use by a request that has not ended; "
        "give another, or abort that one first",
        param="request_id",
        value=request_id,
    )


def shown(error: BaseException) -> str:
    """The error as users see it."""
    return str(error) if isinstance(error, RequestFailedError) else describe(error)
