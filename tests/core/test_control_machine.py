"""Any order of requests, aborts, steps and control commands over the whole engine.

Every command gives what the table says, each request ends exactly once with the tokens that it
gets undisturbed (or the first of them, if it was aborted), and in the end nothing is in use.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from random import Random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from framework.core.commands import operation_of
from framework.core.control import MEMORY
from framework.core.transitions import TRANSITIONS, Outcome, Transition
from framework.launcher import Engine
from hookspecs.errors import CommandError
from hookspecs.types.commands import (
    CommandArguments,
    Drain,
    GetStatus,
    Pause,
    PluginCommand,
    ResetPrefixCache,
    Resume,
    Sleep,
    UpdateWeights,
    WakeUp,
)
from hookspecs.types.control import EngineState, PauseMode, WakeTag
from tests.core.controlled import Controlled
from tests.core.scripted import greedy, launch_scripted

S = EngineState
MAX_MODEL_LEN = 48
SEEDS = st.integers(0, 2**32)


def make_command(random: Random) -> CommandArguments:
    """Each command, and each way to wake up, about equally often."""
    pick = random.choice
    mode, level = pick(list(PauseMode)), random.randint(0, 2)
    tags = tuple(random.sample(list(WakeTag), random.randint(1, 3)))
    return pick(
        [
            Pause(mode=mode, clear_cache=pick([True, False])),
            Pause(mode=PauseMode.WAIT),
            Resume(),
            Sleep(level=level, mode=mode),
            Sleep(level=2, mode=PauseMode.KEEP),
            WakeUp(tags=tags),
            WakeUp(tags=(pick(MEMORY),)),
            WakeUp(),
            ResetPrefixCache(preempt_running=pick([True, False])),
            UpdateWeights(tensors={"offset": 0}),
            GetStatus(),
            PluginCommand(command="requests"),
        ]
    )


class Reference:
    """Tokens of prompts in an engine that nobody controls."""

    def __init__(self) -> None:
        self.engine: Engine = launch_scripted(
            cache={"num_blocks": 64, "enable_prefix_caching": False},
            model={"name": "scripted", "max_model_len": MAX_MODEL_LEN},
        )
        self._known: dict[tuple[tuple[int, ...], int], list[int]] = {}

    def tokens(self, prompt: list[int], max_tokens: int) -> list[int]:
        key = (tuple(prompt), max_tokens)
        if key not in self._known:
            (output,) = self.engine.generate([prompt], greedy(max_tokens))
            self._known[key] = output.outputs[0].token_ids
        return self._known[key]


class ControlMachine(RuleBasedStateMachine):
    """The engine, and beside it what must come of each request and command."""

    def __init__(self, reference: Reference) -> None:
        super().__init__()
        self.reference = reference
        self.made: Controlled | None = None
        self.expected: dict[str, list[int]] = {}
        self.aborted: set[str] = set()
        self.pending: list[tuple[Transition, Future[Any]]] = []
        self.may_abort: set[str] = set()
        """Requests that some command was allowed to abort."""
        self.refused: set[str] = set()

    @property
    def controlled(self) -> Controlled:
        assert self.made is not None
        return self.made

    @initialize(num_seqs=st.integers(1, 4), num_blocks=st.integers(16, 40), caching=st.booleans())
    def start(self, num_seqs: int, num_blocks: int, caching: bool) -> None:
        self.made = Controlled(
            num_seqs=num_seqs,
            model={"name": "scripted", "max_model_len": MAX_MODEL_LEN},
            cache={"num_blocks": num_blocks, "enable_prefix_caching": caching},
        )

    @rule(seed=SEEDS, count=st.integers(1, 4), steps=st.integers(0, 4))
    def add(self, seed: int, count: int, steps: int) -> None:
        random = Random(seed)
        for _ in range(count):
            request_id = f"r{len(self.expected)}"
            prompt = [3 + i % 7 for i in range(random.randint(1, 20))]
            prompt.append(random.randint(3, 90))
            max_tokens = random.randint(1, 20)
            if self.controlled.state in (S.SLEEPING, S.WAKING, S.DRAINING):
                self.refused.add(request_id)
            self.expected[request_id] = self.reference.tokens(prompt, max_tokens)
            self.controlled.add(request_id, prompt, max_tokens)
        self.step(steps)

    @rule(count=st.integers(1, 12))
    def step(self, count: int) -> None:
        for _ in range(count):
            if self.controlled.core.has_work:
                self.controlled.step()

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.expected)))
        if request_id not in self.controlled.ended:
            self.aborted.add(request_id)
        self.controlled.abort(request_id)

    @rule(seed=SEEDS)
    def command(self, seed: int) -> None:
        self._give(make_command(Random(seed)))

    @rule(seed=SEEDS, count=st.integers(0, 3))
    def commands(self, seed: int, count: int) -> None:
        """Several in a row, the last of them twice."""
        random = Random(seed)
        for _ in range(count):
            self._give(make_command(random))
        last = make_command(random)
        self._give(last)
        self.step(count)
        self._give(last)

    @rule()
    def go_on(self) -> None:
        self._give(WakeUp())

    @precondition(lambda self: len(self.expected) > 20)
    @rule(timeout=st.sampled_from([None, 0.0, 1e6]))
    def drain(self, timeout: float | None) -> None:
        self._give(Drain(timeout_s=timeout))

    @invariant()
    def what_is_pending_matches_the_state(self) -> None:
        if self.made is None:
            return
        state, status = self.controlled.state, self.controlled.core.status()
        for entry, future in self.pending:
            if not future.done():
                assert state is entry.next
            elif future.exception() is not None:
                with pytest.raises(CommandError, match=r"superseded by (resume|wake_up|drain)"):
                    future.result(0)
        self.pending = [each for each in self.pending if not each[1].done()]
        assert bool(self.pending) == (state is S.PAUSING) or state is S.DRAINING
        assert (status.pause_mode is None) == (state in (S.RUNNING, S.DRAINING))
        assert (WakeTag.SCHEDULING in status.asleep) or state not in (S.SLEEPING, S.WAKING)
        if state in (S.PAUSED, S.SLEEPING, S.WAKING):
            self.controlled.settle()
            assert not self.controlled.core.has_work

    def teardown(self) -> None:
        if self.made is None:
            return
        try:
            if self.controlled.state is not S.DRAINING:
                self._give(WakeUp())
            self.controlled.check_idle()
            self._check_ends()
        finally:
            self.controlled.engine.shutdown()

    def _give(self, arguments: CommandArguments) -> None:
        controlled = self.controlled
        before, status = controlled.state, controlled.core.status()
        entry = TRANSITIONS[operation_of(arguments), before]
        live = self.expected.keys() - controlled.ended.keys()
        if "abort" in entry.running or isinstance(arguments, Drain):
            self.may_abort |= live
        future = controlled.ask(arguments)
        if not future.done():
            assert entry.outcome is Outcome.DONE
            assert controlled.state is entry.next
            self.pending.append((entry, future))
            return
        error = future.exception(0)
        if error is not None:
            assert isinstance(error, CommandError)
            assert entry.outcome is Outcome.REFUSED or (entry.refusal and self._unmet(arguments))
            assert controlled.core.status() == status
            return
        assert entry.outcome is not Outcome.REFUSED
        left = [tag for tag in MEMORY if tag in controlled.core.status().asleep]
        if isinstance(arguments, WakeUp) and left:
            assert controlled.state is entry.next is S.WAKING
        else:
            assert controlled.state is entry.then
        if isinstance(arguments, ResetPrefixCache):
            assert future.result(0) or not arguments.preempt_running
        elif isinstance(arguments, PluginCommand):
            totals, status = future.result(0)["totals"], controlled.core.status()
            assert totals["running"] == status.num_running
            assert totals["waiting"] + totals["preempted"] == status.num_waiting
        else:
            assert future.result(0).state is controlled.state

    def _unmet(self, arguments: CommandArguments) -> bool:
        """Whether the condition of an operation that may be refused does not hold."""
        status = self.controlled.core.status()
        if isinstance(arguments, WakeUp):
            return any(tag not in (arguments.tags or ()) for tag in status.asleep)
        return WakeTag.WEIGHTS in status.asleep or status.state is S.RUNNING

    def _check_ends(self) -> None:
        assert self.controlled.ended.keys() == self.expected.keys()
        for request_id, (reason, tokens) in self.controlled.ended.items():
            expected = self.expected[request_id]
            assert tokens == expected[: len(tokens)]
            if reason == "error":
                assert request_id in self.refused and not tokens
            elif reason == "abort":
                assert request_id in self.aborted | self.may_abort
            else:
                assert (reason, tokens) == ("length", expected)


@pytest.fixture(scope="module")
def reference() -> Iterator[Reference]:
    made = Reference()
    with made.engine:
        yield made


def test_any_order_of_commands(reference: Reference) -> None:
    class Machine(ControlMachine):
        def __init__(self) -> None:
            super().__init__(reference)

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
