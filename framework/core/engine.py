"""`EngineCore`: schedule, run the forward, sample, update state, publish. Core process.

One thread calls it; nothing here waits but for the executor's futures.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from framework.core.announce import Announcer
from framework.core.attribution import Attribution
from framework.core.commands import perform
from framework.core.control import Call, ControlPlane
from framework.core.engine_view import LentEngine
from framework.core.guards import Exclusive, PhaseGuard
from framework.core.inside_wrappers import InsideWrappers
from framework.core.invariants import (
    check_cache,
    check_future,
    check_idle,
    check_result,
    check_schedule,
)
from framework.core.operations import Operations
from framework.core.outputs import OutputBuilder
from framework.core.parts import EngineParts
from framework.core.request import Request
from framework.core.roster import Roster
from framework.core.transitions import LATE_REFUSALS
from framework.core.update import Ending, apply_result
from hookspecs.errors import (
    CommandError,
    ContractViolation,
    EngineDeadError,
    FrameworkError,
    InternalError,
    InvalidRequestError,
    StepError,
)
from hookspecs.types.commands import CommandArguments
from hookspecs.types.control import EngineState, EngineStatus
from hookspecs.types.outputs import EngineCoreOutputs
from hookspecs.types.request import EngineCoreRequest, FinishReason, RequestStatus
from hookspecs.types.stats import SchedulerStats
from hookspecs.types.step import SchedulerOutput

__all__ = ["EngineCore"]

logger = logging.getLogger("framework.core")
_BLOCKS_CHECKED_A_STEP = 8


class _GivenUp(NamedTuple):
    request: Request
    reason: FinishReason


_Input = Request | _GivenUp | Call


class EngineCore:
    """Owns the requests and the invariants; the parts decide and compute."""

    def __init__(self, parts: EngineParts) -> None:
        self.parts = parts
        self.failure: FrameworkError | None = None
        """What has stopped it."""
        self._untold: FrameworkError | None = None
        """The failure, until `step` has raised it, if no call has."""
        self._clock = parts.clock
        self._table = parts.table
        self._view = parts.view
        self._kv_cache = parts.kv_cache
        self._scheduler = parts.scheduler
        self._side_channels = parts.side_channels
        self._announce = Announcer(parts.calls, parts.engine_index)
        self._outputs = OutputBuilder(parts.engine_index)
        self._roster = Roster(parts)
        self._inputs: deque[_Input] = deque()
        """In the order in which they came; empty between steps."""
        self._exclusive = Exclusive()
        self._guards = {
            phase: PhaseGuard(phase, self._stop_because) for phase in parts.phase_plugins
        }
        self._phase = "schedule"
        """The phase of a step that runs."""
        self._plane = ControlPlane()
        self._operations = Operations(self._plane, self)
        self._step = 0
        self.last_step_was_empty = False
        """Whether the last step had nothing to compute."""
        self.goes_on = False
        """Whether the next step is likely to be like the last one: that started and ended no
        request, and none waits."""
        self._checked_at = 0
        self._num_preempted = 0
        self._told = (0, 0)
        """Requests, and those that run, when statistics were last told."""
        self._budget = parts.config.scheduler.max_num_batched_tokens
        self._debug = parts.config.engine.debug
        wrappers = {phase: parts.calls.wrapped_by(phase) for phase in parts.phase_plugins}
        inside = InsideWrappers(parts)
        self._attribution = Attribution(
            parts.phase_plugins, wrappers, parts.plugin_of, inside.raised
        )
        bind = parts.calls.bind_step
        scheduler = inside if wrappers["schedule"] else parts.scheduler
        executor = (
            inside if wrappers["execute_model"] or wrappers["sample_tokens"] else parts.executor
        )
        self._schedule_phase = bind("schedule", scheduler.schedule)
        self._execute_phase = bind("execute_model", executor.execute_model)
        self._sample_phase = bind("sample_tokens", executor.sample_tokens)
        self._update_phase = bind("update_from_output", parts.scheduler.update_from_output)
        self._plugin_commands = parts.make_commands(
            LentEngine(parts.view, parts.kv_cache, self._inside, self._operations.call_workers)
        )

    # Requests

    def add_request(self, wire: EngineCoreRequest) -> None:
        """Queue a request. InvalidRequestError for an id or handle that is in use; a request
        that is wrong in itself, that no cache state could ever hold, or that comes in a state
        in which none are taken, ends at once with an error. Inside of a step it takes effect
        with the next one."""
        self._require_alive()
        taken = self._roster.taken(wire)
        if taken is not None:
            raise InvalidRequestError(taken, param="request_id", value=wire.request_id)
        self._add(self._roster.make(wire))

    def prepare(self, wire: EngineCoreRequest) -> Request:
        """The engine's own form of a request, with what costs time computed. Any thread."""
        return self._roster.prepare(wire)

    def add_prepared(self, request: Request) -> None:
        """`add_request` for what `prepare` made; one whose id is in use ends with an error."""
        self._require_alive()
        taken = self._roster.taken(request.wire)
        if taken is None:
            self._add(request)
        else:
            self._refuse(request, taken)

    def _add(self, request: Request) -> None:
        self._roster.number(request)
        if request.refusal is not None:
            self._refuse(request, request.refusal)
            return
        self._roster.enter(request)
        self._inputs.append(request)
        self._drain_unless_busy()

    def _refuse(self, request: Request, why: str, *, by_state: bool = False) -> None:
        """End a request that was not queued: it is wrong, or none are taken in this state."""
        self._table.end(request, FinishReason.ERROR, why)
        self._outputs.add_ended(request, refused=by_state)
        self._announce.request_finished(request)

    def abort_requests(
        self,
        handles: Iterable[int],
        *,
        client_index: int = 0,
        reason: FinishReason = FinishReason.ABORT,
    ) -> None:
        """End requests; handles that are gone are ignored, and so is the call once the engine
        has stopped. Inside of a step it takes effect with the next one."""
        if not self._plane.alive:
            return
        for handle in handles:
            request = self._roster.find(client_index, handle)
            if request is not None:
                self._inputs.append(_GivenUp(request, reason))
        self._drain_unless_busy()

    def _drain_unless_busy(self) -> None:
        """Outside of a step inputs take effect at once; inside (an observer, or a stream that
        the garbage collector closes) they must not change what the step works on."""
        if not self._exclusive.held:
            with self._exclusive, self._guards["schedule"]:
                self._drain()

    def _drain(self) -> None:
        """Take all inputs, in order; what commands wait for may have come with them."""
        if self._inputs:
            self._view.refresh()
        while self._inputs:
            item = self._inputs.popleft()
            if isinstance(item, Request):
                self._enter(item)
            elif isinstance(item, Call):
                perform(self._operations, item)
            elif not item.request.finished:
                self._end(Ending(item.request, item.reason, None, True, False))
        self._operations.settle()

    def _enter(self, request: Request) -> None:
        refusal = LATE_REFUSALS.get(self._plane.state)
        if refusal is None:
            self._table.enter(request)
            self._scheduler.add_request(request)
        else:
            self._roster.leave(request)
            self._refuse(request, refusal, by_state=True)

    @property
    def has_work(self) -> bool:
        """Whether a call of `step` would do, tell, complete or raise anything."""
        if not self._plane.alive:
            return self._untold is not None
        return (
            bool(self._inputs)
            or self._outputs.has_news
            or self._plane.changed
            or (len(self._roster) > 0 if self._plane.schedulable else self._told != self._counts())
        )

    def _counts(self) -> tuple[int, int]:
        return len(self._roster), self._table.num_running

    def next_deadline(self) -> float | None:
        """When `step` will have something to do of itself: seconds, monotonic clock."""
        return self._plane.drain_deadline if self._plane.pending else None

    @property
    def in_step(self) -> bool:
        """Whether it is inside of a step, or of taking an input."""
        return self._exclusive.held

    @property
    def num_requests(self) -> int:
        """Requests that have not ended."""
        return len(self._roster)

    @property
    def step_count(self) -> int:
        """Steps that computed something, since start."""
        return self._step

    # The step

    def step(self) -> dict[int, EngineCoreOutputs]:
        """One step; returns client index to its outputs.

        Raises what made the engine unusable, once; after that EngineDeadError.
        """
        untold, self._untold = self._untold, None
        if untold is not None:
            raise untold
        if not self._plane.alive:
            self._require_alive()
        if self._exclusive.held:
            raise InternalError("step was called inside of a step")
        self._phase = "schedule"
        with self._exclusive:
            try:
                return self._step_once()
            except BaseException as error:
                self._stop_because(self._phase, error)
                raise

    def _step_once(self) -> dict[int, EngineCoreOutputs]:
        """A step. `_phase` says what an exception is put down to."""
        begin = self._clock()
        scheduled = None
        self._view.refresh()
        self._drain()
        if self._plane.schedulable:
            self.parts.policies.only_started = self._plane.state is EngineState.PAUSING
            scheduled = self._schedule_phase()
            self._admit(scheduled)
        if scheduled is None or not len(scheduled.slots):
            self.last_step_was_empty = True
        else:
            self.last_step_was_empty = False
            self._run(scheduled, begin)
        self._phase = "update_from_output"
        self._operations.settle()
        self._check()
        return self._publish()

    def _run(self, scheduled: SchedulerOutput, begin: float) -> None:
        """The forward, its tokens, and what follows from them."""
        decided = self._clock()
        self._phase = "execute_model"
        launched = self._execute_phase(scheduled)
        check_future("execute_model", launched)
        done = launched.done()
        if done:
            launched.result()
        self._phase = "sample_tokens"
        sampling = self._sample_phase(None)
        check_future("sample_tokens", sampling)
        if not done:
            self._phase = "execute_model"
            launched.result()
            self._phase = "sample_tokens"
        result = sampling.result()
        check_result(scheduled, result, self._table, self.parts.model.info)
        ran = self._clock()
        self._phase = "update_from_output"
        self._side_channels.receive(scheduled, result)
        if result.failures:
            self._announce.rows_failed(result.failures.values())
        applied = apply_result(result, self._table, self._kv_cache, self._outputs, self._end)
        self._update_phase(scheduled, applied)
        end = self._clock()
        self._view.count_step(end - begin)
        if self._announce.wants_steps:
            self._announce.step_finished(
                scheduled,
                num_sampled=len(result.token_ids),
                num_running=self._scheduler.num_running,
                num_waiting=self._scheduler.num_waiting,
                times=(begin, decided, ran, end),
            )

    def _admit(self, scheduled: SchedulerOutput) -> None:
        """Check the decision, then make it the kernel's: counts advance, starts are noted."""
        table = self._table
        if table.eventful:
            for request, reason, message in table.take_pending_finishes():
                if not request.finished:
                    self._end(Ending(request, reason, message or None, True, False))
        check_schedule(scheduled, table, self._kv_cache, self._budget)
        if table.eventful:
            for request in table.take_started():
                if request.scheduled_at is None:
                    request.scheduled_at = self._clock()
                    self._announce.request_admitted(request)
        if not len(scheduled.slots):
            return
        self._step += 1
        scheduled.step = self._step
        scheduled.released_slots, scheduled.preempted_request_ids = [], []
        if table.eventful:
            table.eventful = False
            scheduled.released_slots = table.take_released()
            scheduled.preempted_request_ids = table.take_preempted()
            self._num_preempted += len(scheduled.preempted_request_ids)
        table.advance(scheduled.slots, scheduled.num_scheduled_tokens)
        if self._side_channels:
            self._side_channels.send(scheduled)

    def _end(self, ending: Ending) -> None:
        """The one way out of a queued request: blocks, queues, slot, output row, observers."""
        request, reason, error, keep_blocks, has_row = ending
        if request.slot >= 0:
            self._kv_cache.free(request.slot, keep=keep_blocks)
        self._scheduler.on_request_finished(request, reason)
        self._table.end(request, reason, error)
        self._table.leave(request)
        self._roster.leave(request)
        if not has_row:
            self._outputs.add_ended(request)
        self._announce.request_finished(request)

    def _publish(self) -> dict[int, EngineCoreOutputs]:
        """The outputs of each front end; statistics go to the first. After a change of the
        state, or of who waits and runs, they come without requests, too."""
        counts = self._counts()
        changed = self._plane.take_changed() or self._told != counts
        self.goes_on = not changed and counts[0] == counts[1] and not self.last_step_was_empty
        stats = None
        if changed or self._outputs.has_news:
            self._told, stats = counts, self._take_stats()
        outputs = self._outputs.build(self._clock())
        if changed and not outputs:
            outputs = {0: self._outputs.without_rows(0, self._clock())}
        for bundle in outputs.values():
            bundle.scheduler_stats = stats
            break
        return outputs

    # Control

    @property
    def state(self) -> EngineState:
        """May be read in any thread."""
        return self._plane.state

    def command(self, arguments: CommandArguments) -> Future[Any]:
        """Run a control command (`framework.core.commands`): now, or inside of a step after it.
        The future holds its answer or its failure, and may be completed by a later step."""
        call = Call(arguments)
        if not self._plane.alive:
            perform(self._operations, call)
            return call.future
        self._inputs.append(call)
        try:
            self._drain_unless_busy()
        except Exception:
            if not call.future.done():
                raise
            self._untold = self.failure
        return call.future

    def status(self) -> EngineStatus:
        """The engine's state, also once it has stopped."""
        plane, running = self._plane, self._table.num_running
        return EngineStatus(
            engine_index=self.parts.engine_index,
            state=plane.state,
            pause_mode=plane.pause_mode,
            sleep_level=plane.sleep_level,
            asleep=plane.asleep,
            num_running=running,
            num_waiting=len(self._roster) - running,
            step=self._step,
            weights_version=plane.weights_version,
        )

    def publish(self) -> dict[int, EngineCoreOutputs]:
        """What there is to tell, as `step` returns it, without a step."""
        if not self._plane.alive or self._exclusive.held:
            return {}
        with self._exclusive, self._guards["update_from_output"]:
            return self._publish()

    def executor_failed(self, reason: str) -> None:
        """The executor has lost a worker: the engine stops, and the next `step` raises why."""
        if self._plane.alive:
            plugin = self.parts.phase_plugins["execute_model"]
            self._die(
                StepError(
                    f"the executor of plugin {plugin!r} lost a worker: {reason}",
                    plugin=plugin,
                    hook="execute_model",
                )
            )
            self._untold = self.failure

    def shutdown(self, reason: str = "shutdown") -> None:
        """Stop the executor; safe to call twice."""
        if self.state is EngineState.STOPPED:
            return
        orderly = self.state is not EngineState.DEAD
        self._plane.enter(EngineState.STOPPED)
        self._fail_commands(EngineDeadError(f"the engine core was stopped: {reason}"))
        try:
            self._plugin_commands.close()
            if orderly:
                self._announce.engine_stopping(reason)
        finally:
            try:
                self.parts.executor.shutdown()
            finally:
                self._side_channels.close()

    # What control operations need: `framework.core.operations.Kernel`

    @property
    def capabilities(self) -> frozenset[str]:
        return self.parts.worker_capabilities

    def now(self) -> float:
        return self._clock()

    def has_requests(self) -> bool:
        return bool(self._inside())

    def has_started(self) -> bool:
        started = (RequestStatus.RUNNING, RequestStatus.PREEMPTED)
        return any(request.status in started for request in self._roster.requests())

    def abort_all(self) -> None:
        with self._guards["schedule"]:
            for request in self._inside():
                self._end(Ending(request, FinishReason.ABORT, None, True, False))

    def preempt_all(self) -> None:
        if self._table.num_running:
            with self._guards["schedule"]:
                self._scheduler.preempt_all()
                if self._table.num_running:
                    raise ContractViolation(
                        f"preempt_all left {self._table.num_running} requests running"
                    )

    def forget_cache(self) -> bool:
        with self._guards["schedule"]:
            done = self._kv_cache.reset_prefix_cache()
        if done:
            self._announce.cache_reset()
        return done

    def clear_cache(self) -> None:
        self.preempt_all()
        if not self.forget_cache():
            with self._guards["schedule"]:
                raise ContractViolation(
                    "reset_prefix_cache did nothing although no request runs",
                    plugin=self._kv_cache.context.plugin or None,
                )

    def call_workers(
        self, command: str, args: Sequence[Any] = (), *, timeout: float | None = None
    ) -> list[Any]:
        return self.parts.executor.collective_rpc(command, args, timeout=timeout)

    def must_call_workers(self, command: str, args: Sequence[Any]) -> None:
        try:
            self.call_workers(command, args)
        except BaseException as error:
            self._lose_workers(command, error)
            raise

    def run_plugin_command(self, name: str, arguments: Mapping[str, Any]) -> Any:
        return self._plugin_commands.run(name, arguments)

    def replace_weights(self, path: str | None, tensors: Mapping[str, Any] | None) -> None:
        try:
            self.call_workers("update_weights", (path, tensors))
        except (InvalidRequestError, CommandError):
            raise  # by the contract nothing was replaced
        except BaseException as error:
            self._lose_workers("update_weights", error)
            raise

    def _lose_workers(self, command: str, error: BaseException) -> None:
        """What they hold now is unknown: going on would give wrong tokens."""
        failure = self._attribution.attribute_command(command, error)
        self._die(failure)
        if failure is not error and isinstance(error, Exception):
            raise failure from error

    def _inside(self) -> list[Request]:
        """Requests that have been taken: those behind a command have not arrived for it."""
        if not self._inputs:
            return list(self._roster.requests())
        outside = {id(item) for item in self._inputs if isinstance(item, Request)}
        return [request for request in self._roster.requests() if id(request) not in outside]

    # Behind the step

    def _stop_because(self, phase: str, error: BaseException) -> None:
        """What a guard does with an exception: the engine stops, attributed to the plugin it
        came from. An interrupt stops it too: the step is half done."""
        if not self._plane.alive:
            return
        failure = self._attribution.attribute(phase, error)
        self._die(failure)
        if failure is not error and isinstance(error, Exception):
            raise failure from error

    def _check(self) -> None:
        """Integrity: slots and blocks in use when idle; all accounts when debugging, and when
        idle after enough steps to carry the cost, which grows with the cache."""
        idle = not len(self._roster)
        if idle:
            check_idle(self._kv_cache, self._table)
        due = (self._step - self._checked_at) * _BLOCKS_CHECKED_A_STEP
        if self._debug or (idle and due >= self._kv_cache.num_total_blocks):
            check_cache(self._kv_cache)
            self._checked_at = self._step

    def _take_stats(self) -> SchedulerStats:
        preempted, self._num_preempted = self._num_preempted, 0
        return SchedulerStats(
            num_running=self._scheduler.num_running,
            num_waiting=self._scheduler.num_waiting,
            num_preempted=preempted,
            kv_blocks_total=self._kv_cache.num_total_blocks,
            kv_blocks_free=self._kv_cache.num_free_blocks,
            prefix_cache=self._kv_cache.take_stats(),
            step=self._step,
            state=self._plane.state,
            sleep_level=self._plane.sleep_level,
        )

    def _require_alive(self) -> None:
        if not self._plane.alive:
            raise EngineDeadError(f"the engine core is {self.state}; it takes no more requests")

    def _die(self, error: FrameworkError) -> None:
        self.failure = error
        self._plane.enter(EngineState.DEAD)
        self._fail_commands(EngineDeadError(f"the engine core stopped: {error}"))
        logger.error("the engine core stops: %s", error)
        self._announce.engine_failed(error)

    def _fail_commands(self, error: EngineDeadError) -> None:
        """Nobody will complete the commands that wait."""
        self._plane.fail_pending(error)
        for item in self._inputs:
            if isinstance(item, Call):
                item.fail(error)
        self._inputs.clear()
