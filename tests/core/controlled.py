"""An engine under control commands: who is in it, and what became of each request."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

import pytest

from framework.core.engine import EngineCore
from framework.frontend.llm_engine import LLMEngine
from hookspecs import PluginInfo, hookimpl
from hookspecs.types.commands import CommandArguments, Drain, Pause, Sleep, WakeUp
from hookspecs.types.control import EngineState, PauseMode, WakeTag
from tests.core.scripted import greedy, launch_scripted
from tests.idle import assert_idle, core_of

KEEP, WAIT, ABORT = PauseMode.KEEP, PauseMode.WAIT, PauseMode.ABORT
WEIGHTS, KV_CACHE, SCHEDULING = WakeTag.WEIGHTS, WakeTag.KV_CACHE, WakeTag.SCHEDULING


class Recorder:
    """Counts ends of requests and resets of the cache; may call something after a step."""

    PLUGIN = PluginInfo(name="control-recorder", api=">=1.0,<2")

    def __init__(self) -> None:
        self.finished: list[str] = []
        self.failures: list[Any] = []
        self.resets = 0
        self.after_step: Any = None

    @hookimpl
    def on_request_finished(self, event: Any) -> None:
        self.finished.append(event.request_id.partition("-")[0])

    @hookimpl
    def on_cache_reset(self, event: Any) -> None:
        self.resets += 1

    @hookimpl
    def on_engine_failed(self, event: Any) -> None:
        self.failures.append(event)

    @hookimpl
    def on_step_finished(self, event: Any) -> None:
        then, self.after_step = self.after_step, None
        if then is not None:
            then()


class Controlled:
    """One engine and its requests."""

    def __init__(self, *, num_seqs: int = 4, plugins: Sequence[object] = (), **sections: Any):
        self.recorder = Recorder()
        self.engine = launch_scripted(
            plugins=[self.recorder, *plugins],
            scheduler={"max_num_seqs": num_seqs, "max_num_batched_tokens": 32},
            **sections,
        )
        self.ended: dict[str, tuple[str, list[int]]] = {}
        """Request id to finish reason and tokens."""
        self.errors: dict[str, str] = {}
        self.stats: list[Any] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.engine.shutdown()

    @property
    def core(self) -> EngineCore:
        return core_of(self.engine)

    @property
    def llm(self) -> LLMEngine:
        return self.engine.engine

    @property
    def state(self) -> EngineState:
        return self.core.state

    @property
    def worker(self) -> Any:
        executor: Any = self.core.parts.executor
        return executor.worker

    def add(self, request_id: str, prompt: list[int] | None = None, max_tokens: int = 8) -> None:
        self.llm.add_request(request_id, prompt or prompt_of(request_id), greedy(max_tokens))

    def abort(self, request_id: str) -> None:
        for output in self.llm.abort_request(request_id):
            self._take(output)

    def ask(self, arguments: CommandArguments) -> Future[Any]:
        """Give a command, without stepping for it."""
        return self.core.command(arguments)

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            for output in self.llm.step():
                self._take(output)

    def settle(self) -> None:
        """Step while that does anything."""
        for _ in range(5000):
            if not (self.core.has_work or self.llm._kept or self.llm._client.has_outputs):
                return
            self.step()
        raise AssertionError("the engine always has work")

    def enter(self, state: EngineState) -> None:
        """From RUNNING, with requests that have started, to a state in which they are kept."""
        if state is EngineState.PAUSING:
            self.ask(Pause(mode=WAIT, clear_cache=False))
        elif state is EngineState.PAUSED:
            self.ask(Pause(mode=KEEP, clear_cache=False)).result(0)
        elif state in (EngineState.SLEEPING, EngineState.WAKING):
            self.ask(Sleep(level=1, mode=KEEP)).result(0)
            if state is EngineState.WAKING:
                self.ask(WakeUp(tags=(WEIGHTS,))).result(0)
        elif state is EngineState.DRAINING:
            self.ask(Drain())
        elif state is EngineState.STOPPED:
            self.core.shutdown()
        elif state is EngineState.DEAD:
            self.core.executor_failed("it was unplugged")
        assert self.state is state

    def check_idle(self) -> None:
        """Nothing is left, each request has ended once, all accounts add up."""
        self.settle()
        assert_idle(self.engine)
        assert sorted(self.recorder.finished) == sorted(self.ended)

    def _take(self, output: Any) -> None:
        if output.finished:
            assert output.request_id not in self.ended, "ended twice"
            completion = output.outputs[0]
            self.ended[output.request_id] = (str(completion.finish_reason), completion.token_ids)
            if completion.error:
                self.errors[output.request_id] = completion.error


def prompt_of(request_id: str) -> list[int]:
    """A prompt of its own for each id."""
    return [3 + (ord(letter) * (place + 7)) % 90 for place, letter in enumerate(request_id * 6)]


def undisturbed(*request_ids: str, max_tokens: int = 8) -> dict[str, list[int]]:
    """Request id to the tokens that it gets in an engine that nobody controls."""
    with launch_scripted() as engine:
        outputs = engine.generate([prompt_of(each) for each in request_ids], greedy(max_tokens))
    return {
        request_id: output.outputs[0].token_ids
        for request_id, output in zip(request_ids, outputs, strict=True)
    }


def failing(message: str) -> Any:
    """A function that raises OSError whatever it is called with."""

    def fail(*arguments: Any, **keywords: Any) -> Any:
        raise OSError(message)

    return fail


def spoil(controlled: Controlled, monkeypatch: pytest.MonkeyPatch, **commands: Any) -> None:
    """Replace commands of the worker."""
    worker = controlled.worker
    real = dict(worker.commands())
    monkeypatch.setattr(worker, "commands", lambda: {**real, **commands})
