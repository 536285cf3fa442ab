"""The loop of an engine core process: take inputs, step, publish. Main thread.

The input thread reaches the engine core through a queue alone. What is to be told is sent from
here, see `framework.core.sender`.
"""

from __future__ import annotations

import queue
import time
from concurrent.futures import Future
from typing import Any, Final

import numpy as np

from framework.core.commands import shown_name
from framework.core.engine import EngineCore
from framework.core.heartbeat import LoopProgress
from framework.core.input_thread import (
    Abort,
    Add,
    Call,
    ExecutorFailed,
    Input,
    StopRequested,
    ThreadFailed,
    Wave,
)
from framework.core.sender import Sender
from framework.process.remote_error import error_to_send, printable
from hookspecs.errors import CommandError, EngineDeadError, InvalidRequestError
from hookspecs.types.commands import CommandArguments, Drain, Resume, WakeUp
from hookspecs.types.outputs import EngineCoreOutputs, UtilityResult
from hookspecs.types.request import FinishReason

__all__ = ["EngineCoreProcess", "refusal"]

_HELD_BACK_S: Final = 0.001
"""Wait after a step in which policies held all requests back."""
_TOGETHER_S: Final = 0.0005
"""Outputs of steps that are shorter are sent together: each sending wakes two threads, which would
cost more than such a step. A step of a real model is longer, and its outputs leave at once."""


class EngineCoreProcess:
    """Runs one engine core until it is told to stop."""

    def __init__(
        self,
        core: EngineCore,
        inputs: queue.SimpleQueue[Input],
        sender: Sender,
        progress: LoopProgress,
    ) -> None:
        self._core = core
        self._inputs = inputs
        self._sender = sender
        self._progress = progress
        self._state = core.state
        self._drained: Future[Any] | None = None
        self._answers: list[tuple[int, UtilityResult]] = []
        """Of commands that are done."""
        self._unsent: dict[int, list[EngineCoreOutputs]] = {}
        """Outputs since `_sent_at`, by client index."""
        self._sent_at = 0.0
        self.wave = 0
        """The wave of data-parallel engines that this one is in."""

    def run(self) -> None:
        """Returns when told to stop and all requests have ended; raises what made the engine
        unusable."""
        while self._drained is None or not self._drained.done():
            self._take_inputs()
            try:
                if self._core.has_work:
                    self._progress.begins()
                    outputs = self._core.step()
                    self._progress.ends()
                    for client_index, bundle in outputs.items():
                        self._unsent.setdefault(client_index, []).append(bundle)
            finally:
                self._tell()

    def _take_inputs(self) -> None:
        """All that has come; waits while there is nothing to do."""
        inputs = self._inputs
        if inputs.empty():
            wait_s = self._wait_s()
            if wait_s == 0.0:
                return
            try:
                self._apply(inputs.get(timeout=wait_s))
            except queue.Empty:
                return
        if self._unsent:  # what has come may make the next step a long one
            self._send_outputs()
        while not inputs.empty():
            self._apply(inputs.get())

    def _wait_s(self) -> float | None:
        """Seconds that the loop may wait for inputs; None: until there is one."""
        if self._drained is not None and self._drained.done():
            return 0.0
        if self._core.has_work:
            return _HELD_BACK_S if self._core.last_step_was_empty else 0.0
        deadline = self._core.next_deadline()
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    def _apply(self, message: Input) -> None:
        core = self._core
        if isinstance(message, Add):
            for request in message.requests:
                core.add_prepared(request)
        elif isinstance(message, Abort):
            core.abort_requests(
                message.message.handles,
                client_index=message.client_index,
                reason=message.message.reason,
            )
        elif isinstance(message, Call):
            self._call(message)
        elif isinstance(message, Wave):
            self.wave = message.message.wave
        elif isinstance(message, StopRequested):
            self._drained = self._command(Drain(timeout_s=message.drain_s))
        elif isinstance(message, ExecutorFailed):
            core.executor_failed(message.reason)
        elif isinstance(message, ThreadFailed):
            raise message.error

    def _call(self, call: Call) -> None:
        def answer(done: Future[Any]) -> None:
            error = done.exception()
            if error is None:
                result = UtilityResult(call_id=call.call_id, result=done.result())
            else:
                error_type, text = error_to_send(error)
                param = error.param if isinstance(error, InvalidRequestError) else None
                result = UtilityResult(
                    call_id=call.call_id,
                    error_type=error_type,
                    error=text,
                    param=printable(param) if isinstance(param, str) else None,
                )
            self._answers.append((call.client_index, result))

        # They would take back the drain with which the process ends, and cut requests off.
        if self._drained is not None and isinstance(call.arguments, Resume | WakeUp):
            refused: Future[Any] = Future()
            refused.set_exception(CommandError("the engine core was told to stop"))
            answer(refused)
            return
        self._command(call.arguments).add_done_callback(answer)

    def _tell(self) -> None:
        """State and answers, in this order and after the outputs and statistics: who has the
        answer of a command knows what it has changed."""
        changed = self._core.state is not self._state
        if self._unsent and (changed or self._answers or not self._may_wait()):
            self._send_outputs()
        if changed:
            self._state = self._core.state
            self._sender.state()
        if self._answers:
            answers, self._answers = self._answers, []
            for client_index, result in answers:
                self._sender.result(client_index, result)

    def _may_wait(self) -> bool:
        """Whether the next step is likely to be as short as the one before: nobody ended, so that
        nobody can start, and nothing has come. What ends a request never waits."""
        return (
            time.monotonic() - self._sent_at < _TOGETHER_S
            and self._drained is None
            and self._inputs.empty()
            and self._core.has_work
            and self._core.goes_on
        )

    def _send_outputs(self) -> None:
        unsent, self._unsent = self._unsent, {}
        for client_index, bundles in unsent.items():
            self._sender.outputs(client_index, bundles)
        self._sent_at = time.monotonic()

    def _command(self, arguments: CommandArguments) -> Future[Any]:
        self._progress.begins(shown_name(arguments))
        try:
            return self._core.command(arguments)
        except EngineDeadError as error:
            failed: Future[Any] = Future()
            failed.set_exception(error)
            return failed
        finally:
            self._progress.ends()


def refusal(engine_index: int, client_index: int, handle: int, why: str) -> EngineCoreOutputs:
    """The output of a request that never reached the engine core."""
    return EngineCoreOutputs(
        handles=np.array([handle], np.int64),
        num_tokens=np.zeros(1, np.int32),
        token_ids=np.empty(0, np.int32),
        finish_codes=np.array([FinishReason.ERROR], np.int8),
        timestamp=time.monotonic(),
        engine_index=engine_index,
        client_index=client_index,
        errors={0: why},
    )
