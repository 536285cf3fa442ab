"""`LLMEngine`: the synchronous front object that is stepped by its caller."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from framework.client.base import EngineCoreClient
from framework.core.info import EngineInfo
from framework.frontend.controls import Controls
from framework.frontend.input_processor import InputProcessor
from framework.frontend.output_batch import ProcessedOutputs
from framework.frontend.output_processor import OutputProcessor
from framework.frontend.processed_request import ProcessedRequest
from framework.frontend.prompts import Prompt
from framework.frontend.stat_loggers import StatLoggerManager
from framework.frontend.tracers import TracerManager
from hookspecs.contracts.stats import Exposition
from hookspecs.errors import EngineDeadError
from hookspecs.types.commands import CommandArguments
from hookspecs.types.outputs import RequestOutput
from hookspecs.types.sampling import SamplingParams

__all__ = ["LLMEngine"]


class LLMEngine(Controls):
    """Requests in, outputs out, a step at a time. Front-end process, one thread.

    Every method that reaches the engine core raises EngineDeadError once that has stopped.
    """

    def __init__(
        self,
        client: EngineCoreClient,
        input_processor: InputProcessor,
        output_processor: OutputProcessor,
        stat_loggers: StatLoggerManager,
        tracers: TracerManager | None = None,
    ) -> None:
        self._client = client
        self.input_processor = input_processor
        self._outputs = output_processor
        self._stat_loggers = stat_loggers
        self._tracers = tracers
        self._kept: list[RequestOutput] = []
        """Outputs that came while a command ran."""
        self._failure: Exception | None = None
        """What went wrong after the outputs of a step were made; raised by the next call."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()

    @property
    def info(self) -> EngineInfo:
        """Limits and facts of the engine core."""
        return self._client.info

    @property
    def num_requests(self) -> int:
        """Requests that have not ended."""
        return self._outputs.num_requests

    def add_request(
        self,
        request_id: str,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        priority: int = 0,
        tenant: str = "",
        deadline: float | None = None,
        cache_salt: str = "",
        labels: dict[str, str] | None = None,
        trace_headers: dict[str, str] | None = None,
        arrival_time: float | None = None,
    ) -> None:
        """Validate a request and hand it over. `deadline`, `arrival_time`: seconds, monotonic
        clock.

        InvalidRequestError, also for an id that is in use; RequestFailedError when a plugin's
        filter raises."""
        self.submit(
            self.input_processor.process(
                request_id,
                prompt,
                params,
                priority=priority,
                tenant=tenant,
                deadline=deadline,
                cache_salt=cache_salt,
                labels=labels,
                trace_headers=trace_headers,
                arrival_time=arrival_time,
            )
        )

    def submit(self, request: ProcessedRequest) -> None:
        """Hand over a processed request: all of its n outputs, or none."""
        self._raise_failure()
        self._outputs.add(request)
        try:
            for engine_request in request.requests:
                self._client.add_request(engine_request)
        except BaseException:
            self.give_up([request.request_id])
            raise

    def step(self) -> list[RequestOutput]:
        """Wait for one bundle of outputs (in-process: run one step) and process it.

        If the engine core fails after that, the outputs come first, and the next call raises.
        What came while a command ran is returned first, at once."""
        self._raise_failure()
        kept, self._kept = self._kept, []
        return kept or self._take_outputs()

    def _take_outputs(self) -> list[RequestOutput]:
        outputs = self._client.get_outputs()
        processed = self._outputs.process(outputs)
        self._stat_loggers.record(
            outputs.scheduler_stats, processed.iteration, outputs.engine_index
        )
        self._trace(processed)
        try:
            self._tell_ends(processed)
        except Exception as error:
            self._failure = error
        return processed.request_outputs

    def abort_request(self, request_ids: str | Iterable[str]) -> list[RequestOutput]:
        """End requests at once; their ids can be used again. Unknown ids are ignored.

        Returns the last output of each, with finish reason `abort`; none comes from `step`."""
        ids = [request_ids] if isinstance(request_ids, str) else request_ids
        processed = self._outputs.abort(ids)
        if processed.request_outputs or processed.ended_here:
            self._stat_loggers.record(None, processed.iteration)
            self._trace(processed)
            self._tell_ends(processed)
        return processed.request_outputs

    def give_up(self, request_ids: Iterable[str]) -> None:
        """`abort_request` while an error is on its way: a dead engine core adds no second one."""
        with contextlib.suppress(EngineDeadError):
            self.abort_request(request_ids)

    def _trace(self, processed: ProcessedOutputs) -> None:
        if self._tracers is not None:
            self._tracers.on_requests_finished(processed.traces)

    def _tell_ends(self, processed: ProcessedOutputs) -> None:
        for reason, handles in processed.ended_here.items():
            self._client.abort_requests(handles, reason)

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def has_unfinished_requests(self) -> bool:
        """Whether `step` has anything to bring, to do or to raise."""
        return (
            self._failure is not None
            or bool(self._kept)
            or self._outputs.num_requests > 0
            or self._client.has_unfinished()
        )

    @property
    def is_stuck(self) -> bool:
        """Whether `step` brings nothing, and raises nothing, until this caller resumes or wakes
        the engine."""
        return self._failure is None and not self._kept and self._client.is_stuck

    def run_command(self, arguments: CommandArguments) -> Any:
        """Run a control command and wait for its answer; raises its failure. In-process this
        steps the engine; what requests output meanwhile comes from the next `step`."""
        self._raise_failure()
        try:
            return self._client.command(arguments)
        finally:
            while self._client.has_outputs:
                self._kept += self._take_outputs()

    def expositions(self) -> list[Exposition]:
        """The metrics of every stat logger that has a text form for collectors."""
        return self._stat_loggers.expositions()

    def shutdown(self) -> None:
        """Close stat loggers, tracers and the connection to the engine core. Safe to call
        twice."""
        self._stat_loggers.close()
        if self._tracers is not None:
            self._tracers.close()
        self._client.shutdown()
