"""What the output processor keeps of a request: a group of n outputs, and each output.

Front-end process, one thread. Times are seconds; which clock is said at each.
"""

from __future__ import annotations

from framework.frontend.detokenizer import Detokenizer
from framework.frontend.logprobs import NUM_CONTEXT, Position, decode_position
from framework.frontend.processed_request import ProcessedRequest
from framework.frontend.tokenizer import Tokenizer
from hookspecs.contracts.stats import FinishedRequest
from hookspecs.types.columns import Float32Column
from hookspecs.types.outputs import CompletionOutput, Logprob, PrefillInfo, RequestOutput
from hookspecs.types.request import EngineCoreRequest, FinishReason
from hookspecs.types.sampling import OutputKind
from hookspecs.types.stats import FinishedRequestStats, RequestMetrics

__all__ = ["OutputState", "RequestGroup"]


class OutputState:
    """One of the n outputs of a request, while it runs."""

    __slots__ = (
        "cumulative_logprob",
        "detokenizer",
        "error",
        "finish_reason",
        "first_token_at",
        "first_token_latency",
        "group",
        "index",
        "last_token_at",
        "logprobs",
        "num_given_tokens",
        "num_hidden",
        "num_preemptions",
        "prefill",
        "request",
        "stop_reason",
        "token_ids",
        "tokenizer",
        "watched",
    )

    def __init__(
        self,
        group: RequestGroup,
        index: int,
        request: EngineCoreRequest,
        tokenizer: Tokenizer | None,
    ) -> None:
        params = request.sampling_params
        self.group = group
        self.index = index
        self.request = request
        self.tokenizer = tokenizer if params.detokenize else None
        self.detokenizer = (
            None
            if self.tokenizer is None
            else Detokenizer(self.tokenizer, params, request.prompt_token_ids)
        )
        self.watched = self.detokenizer is not None and self.detokenizer.has_stops
        """Whether its text can end it: then it is made with each token, else when it is given."""
        self.token_ids: list[int] = []
        self.logprobs: list[dict[int, Logprob]] | None = None
        self.cumulative_logprob: float | None = None
        if params.logprobs is not None:
            self.logprobs, self.cumulative_logprob = [], 0.0
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None
        self.error: str | None = None
        self.num_given_tokens = 0
        self.num_hidden = 0
        """Tokens at the end that have no text: a stop token."""
        self.prefill: PrefillInfo | None = None
        self.num_preemptions = 0
        self.first_token_latency = 0.0
        """From arrival to the first token, clock of the front end."""
        self.first_token_at = 0.0
        """Clock of the engine core."""
        self.last_token_at = 0.0
        """Clock of the engine core."""

    def take(self, token_ids: list[int], positions: list[Position], hidden: int) -> str | None:
        """Take a step's tokens, the last `hidden` of which have no text (a stop token).

        Ends with the token that completes a stop string, which is returned."""
        self.num_hidden = hidden
        if self.logprobs is None and not self.watched:
            self.token_ids += token_ids
            return None
        shown = len(token_ids) - hidden
        for number, token_id in enumerate(token_ids):
            if self.logprobs is not None:
                self._take_logprobs(positions[number])
            self.token_ids.append(token_id)
            if self.watched and number < shown:
                assert self.detokenizer is not None
                stop = self.detokenizer.push(token_id)
                if stop is not None:
                    return stop
        return None

    def _take_logprobs(self, position: Position) -> None:
        assert self.logprobs is not None and self.cumulative_logprob is not None
        previous = self.token_ids[-NUM_CONTEXT:]
        if len(previous) < NUM_CONTEXT:
            previous = self.request.prompt_token_ids[len(previous) - NUM_CONTEXT :] + previous
        self.logprobs.append(decode_position(position, self.tokenizer, previous))
        self.cumulative_logprob += position[0][1]

    def finish(
        self, reason: FinishReason, stop_reason: int | str | None = None, error: str | None = None
    ) -> None:
        """It has ended; what is held back is given."""
        self.finish_reason, self.stop_reason, self.error = reason, stop_reason, error
        self.group.num_running -= 1

    def completion(self, *, delta: bool) -> CompletionOutput:
        """What the user gets now; with `delta`, what is new since the last call."""
        text = self._text(delta)
        from_token = self.num_given_tokens if delta else 0
        self.num_given_tokens = len(self.token_ids)
        return CompletionOutput(
            index=self.index,
            text=text,
            token_ids=self.token_ids[from_token:],
            cumulative_logprob=self.cumulative_logprob,
            logprobs=None if self.logprobs is None else self.logprobs[from_token:],
            finish_reason=None if self.finish_reason is None else str(self.finish_reason),
            stop_reason=self.stop_reason,
            error=self.error,
        )

    def _text(self, delta: bool) -> str:
        detokenizer = self.detokenizer
        if detokenizer is None:
            return ""
        if not self.watched:
            end = len(self.token_ids) - self.num_hidden
            detokenizer.push_many(self.token_ids[self.num_given_tokens : end])
            if self.finish_reason is not None:
                detokenizer.finish()
        return detokenizer.take() if delta else detokenizer.shown()

    def finished_stats(self, now: float) -> FinishedRequestStats:
        """The terminal record. `now`: clock of the front end."""
        assert self.finish_reason is not None
        request, prefill = self.request, self.prefill
        pooling = request.pooling is not None
        return FinishedRequestStats(
            request_id=request.request_id,
            finish_reason=self.finish_reason,
            num_prompt_tokens=len(request.prompt_token_ids),
            num_generation_tokens=len(self.token_ids),
            num_cached_tokens=0 if prefill is None else prefill.num_cached_tokens,
            num_preemptions=self.num_preemptions,
            max_tokens=None if pooling else request.sampling_params.max_tokens,
            e2e_latency=now - request.arrival_time,
            queue_time=0.0 if prefill is None else prefill.scheduled_at - prefill.queued_at,
            prefill_time=0.0
            if prefill is None or not self.token_ids
            else self.first_token_at - prefill.scheduled_at,
            decode_time=self.last_token_at - self.first_token_at,
            time_to_first_token=self.first_token_latency,
            n=len(self.group.outputs),
            prefilled=prefill is not None,
            pooling=pooling,
            tenant=request.tenant,
            labels=request.labels,
        )

    def trace(self, stats: FinishedRequestStats, ended_at_ns: int) -> FinishedRequest:
        """What tracers are told. `ended_at_ns`: nanoseconds since 1970."""
        processed = self.group.processed
        return FinishedRequest(
            request_id=processed.request_id,
            stats=stats,
            index=self.index,
            params=processed.params,
            trace_headers={
                name.lower(): value for name, value in self.request.trace_headers.items()
            },
            ended_at_ns=ended_at_ns,
        )


class RequestGroup:
    """A user's request: its n outputs and what they share."""

    __slots__ = (
        "changed",
        "early",
        "embedding",
        "first",
        "last_token_at",
        "num_cached_tokens",
        "num_running",
        "outputs",
        "processed",
        "prompt_logprobs",
        "prompt_logprobs_given",
    )

    def __init__(self, processed: ProcessedRequest, tokenizer: Tokenizer | None) -> None:
        self.processed = processed
        self.outputs = [
            OutputState(self, index, request, tokenizer)
            for index, request in enumerate(processed.requests)
        ]
        self.early = processed.params.output_kind is not OutputKind.FINAL_ONLY
        """Whether the user gets anything before the end."""
        self.changed: dict[int, OutputState] = {}
        """By index: the outputs that have news which were not given."""
        self.num_running = len(self.outputs)
        self.first: OutputState | None = None
        """The output that got the first token."""
        self.last_token_at = 0.0
        """Clock of the engine core."""
        self.num_cached_tokens: int | None = None
        """Of the first output that told."""
        self.prompt_logprobs: list[dict[int, Logprob] | None] | None = None
        self.prompt_logprobs_given = False
        self.embedding: Float32Column | None = None
        """The vector of a pooling request, once there."""

    @property
    def finished(self) -> bool:
        """Whether all n outputs have ended."""
        return self.num_running == 0

    @property
    def any_given(self) -> bool:
        """Whether the user got a token of any of the n outputs."""
        return any(state.num_given_tokens for state in self.outputs)

    def output(self) -> RequestOutput | None:
        """What the user gets after the news of `changed`; None if it is not time yet.

        CUMULATIVE: all n outputs so far. DELTA: of `changed` what is new. FINAL_ONLY: all n,
        when all have ended. Outputs are in the order of their index."""
        if not self.early and not self.finished:
            return None
        delta = self.processed.params.output_kind is OutputKind.DELTA
        given = self.outputs
        if delta and len(given) > 1:
            given = [self.changed[index] for index in sorted(self.changed)]
        prompt_logprobs = self.prompt_logprobs
        if delta and self.prompt_logprobs_given:
            prompt_logprobs = None
        self.prompt_logprobs_given = self.prompt_logprobs is not None
        return RequestOutput(
            request_id=self.processed.request_id,
            prompt=self.processed.prompt,
            prompt_token_ids=self.processed.prompt_token_ids,
            outputs=[state.completion(delta=delta) for state in given],
            finished=self.finished,
            prompt_logprobs=prompt_logprobs,
            num_cached_tokens=self.num_cached_tokens or 0,
            metrics=self._metrics(),
            embedding=self.embedding,
        )

    def error_output(self, error: str) -> RequestOutput:
        """The last output when making or filtering an output failed: no text, which may be
        what failed."""
        return RequestOutput(
            request_id=self.processed.request_id,
            prompt=self.processed.prompt,
            prompt_token_ids=self.processed.prompt_token_ids,
            outputs=[
                CompletionOutput(
                    index=state.index, finish_reason=str(FinishReason.ERROR), error=error
                )
                for state in self.outputs
            ],
            finished=True,
        )

    def _metrics(self) -> RequestMetrics:
        """Of the output that was first: its waits are the request's."""
        metrics = RequestMetrics(arrival_time=self.processed.arrival_time)
        first = self.first
        if first is None:
            return metrics
        metrics.time_to_first_token = first.first_token_latency
        if first.prefill is not None:
            metrics.queue_time = first.prefill.scheduled_at - first.prefill.queued_at
        metrics.last_token_latency = self.last_token_at - first.first_token_at
        return metrics
