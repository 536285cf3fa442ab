"""Suite of engine commands, over a mini kernel and in real engines."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pytest

from framework.conformance.base import Conformance
from framework.conformance.subject import Subject
from framework.conformance.worlds.commands import (
    CommandBench,
    busy_engine,
    call_arguments,
    odd_calls,
)
from framework.conformance.worlds.cost import lines_of
from framework.conformance.worlds.engines import greedy, prompts_of
from framework.conformance.worlds.leftovers import Leftovers
from framework.conformance.worlds.makers import PartMaker
from framework.conformance.worlds.patience import within
from framework.core.request import Request
from framework.launcher import Engine
from framework.plugins.command_arguments import wrong_arguments
from hookspecs.errors import CommandError, InvalidRequestError

__all__ = ["EngineCommandConformance"]

T = TypeVar("T")
CALLS = 50
PROMPT_S = 3.0
"""Seconds for fifty calls: many times what those that only read the engine take, less than those
that sleep."""
HOOK = "register_engine_commands"
CROWDS = (10, 500)
"""Requests that wait while a call is counted."""


class EngineCommandConformance(Conformance):
    """Commands read the engine between two steps, answer, and change nothing.

    The example of a provider has `arguments`: those of a valid call, where `Arguments` has
    fields without a default.
    """

    kind = "engine_command"
    example_keys = frozenset({"arguments"})

    @pytest.fixture
    def make(self, subject: Subject) -> PartMaker:
        """Makes the command, and the built-in parts around it."""
        return PartMaker(subject)

    # Arguments

    def test_arguments_are_given_by_name(self, make: PartMaker, subject: Subject) -> None:
        """Requires nothing.
        Does: looks at the struct of arguments.
        Must: be frozen, keyword-only, refuse unknown fields, and take the example, if there is
        one.
        """
        bench = CommandBench(make, subject)
        struct = bench.command.Arguments
        wrong = wrong_arguments(type(bench.command))
        assert wrong is None, wrong
        fields = struct.__struct_fields__
        try:
            struct(*[None for _ in fields])
        except TypeError:
            by_position = False
        else:
            by_position = bool(fields)
        assert not by_position, f"{struct.__name__} can be made by position; make it kw_only"
        bench.arguments()

    def test_odd_arguments_are_their_callers_fault(self, subject: Subject) -> None:
        """Requires nothing.
        Does: calls it with values of other types, out of bounds and unknown, while requests run.
        Must: answer, or raise InvalidRequestError or CommandError; what a caller sends is no
        failure of the plugin. State bounds in `Arguments`.
        """

        def ask(engine: Engine) -> None:
            for arguments in odd_calls(call_arguments(subject), _arguments_of(subject)):
                before = _errors(engine, subject)
                outcome: Any = None
                try:
                    outcome = engine.command(subject.provider, arguments)
                except (InvalidRequestError, CommandError) as error:
                    outcome = error
                assert _errors(engine, subject) == before, (
                    f"called with {arguments!r} the command failed: {outcome}"
                )

        _in_engine(subject, ask, "a command with odd arguments")

    # Answers

    def test_it_returns_promptly(self, make: PartMaker, subject: Subject) -> None:
        """Requires nothing.
        Does: calls it 25 times where nothing runs, and 25 times where many requests wait.
        Must: be through within seconds, though nothing else happens meanwhile: no request
        advances, and nobody answers what it waits for.
        """
        bench = CommandBench(make, subject)

        def ask() -> None:
            for _ in range(CALLS // 2):
                bench.run()
            _crowd(bench, 200)
            for _ in range(CALLS // 2):
                bench.run()

        within(ask, f"the command, called {CALLS} times,", PROMPT_S)

    def test_its_answers_can_be_sent(self, subject: Subject) -> None:
        """Requires nothing.
        Does: calls it in an engine where nothing runs, where requests run and wait, and once they
        have ended.
        Must: answer at least once, each time with what msgspec encodes; it may refuse with
        InvalidRequestError or CommandError, but not fail.
        """

        def ask(engine: Engine) -> list[str]:
            refused = []
            for _ in range(3):
                refused += _refusals(engine, subject)
                if engine.engine.has_unfinished_requests():
                    engine.engine.step()
            while engine.engine.has_unfinished_requests():
                engine.engine.step()
            refused += _refusals(engine, subject)
            assert _errors(engine, subject) == 0, f"the command failed: {refused[-1:]}"
            return refused

        with subject.launch() as engine:
            idle = _refusals(engine, subject)
            assert _errors(engine, subject) == 0, f"it failed where nothing runs: {idle}"
        refused = [*idle, *_in_engine(subject, ask, "a command")]
        assert len(refused) < 5, f"it refused every call: {refused[-1]}"

    def test_it_answers_in_every_state(self, subject: Subject) -> None:
        """Requires nothing.
        Does: calls it in an engine that is paused with requests in it, and that sleeps.
        Must: answer or refuse, as in any other state: commands run in all of them.
        """

        def ask(engine: Engine) -> None:
            engine.pause("keep")
            said = _refusals(engine, subject)
            assert _errors(engine, subject) == 0, f"it failed in an engine that is paused: {said}"
            engine.resume()
            engine.sleep(0)
            said = _refusals(engine, subject)
            assert _errors(engine, subject) == 0, f"it failed in an engine that sleeps: {said}"
            engine.wake_up()

        _in_engine(subject, ask, "a command in a paused engine")

    def test_another_process_has_it(self, subject: Subject) -> None:
        """Requires nothing.
        Does: calls it in an engine core that is a process of its own.
        Must: work there as in the caller's process; nothing but its own process is near.
        """
        with subject.launch() as engine:
            here = _refusals(engine, subject)
        with subject.launch(engine={"process": "separate"}) as engine:
            there = _refusals(engine, subject)
            errors = _errors(engine, subject)
        assert bool(here) == bool(there) and errors == 0, (
            f"in a process of its own it says {there or 'an answer'}, in the caller's "
            f"{here or 'an answer'}"
        )

    # What it must leave alone

    def test_requests_and_cache_are_left_alone(self, make: PartMaker, subject: Subject) -> None:
        """Requires nothing.
        Does: compares requests and blocks before and after a call.
        Must: change neither; a command reads.
        """
        bench = CommandBench(make, subject)
        requests = _crowd(bench, 20)
        before = [_facts(request) for request in requests]
        blocks = bench.kernel.kv.num_free_blocks
        for _ in range(2):
            bench.run()
        for request, facts in zip(requests, before, strict=True):
            assert _facts(request) == facts, f"the command changed {request.request_id}"
        now = bench.kernel.kv.num_free_blocks
        assert now == blocks, f"{blocks} blocks were free before the call, {now} after it"

    def test_tokens_do_not_depend_on_it(self, subject: Subject, seed: int) -> None:
        """Requires nothing.
        Does: generates in an engine with a small cache, with calls between all steps and without.
        Must: change no token and no end.
        """

        def ask() -> None:
            expected = _tokens(subject, seed, asked=False)
            found = _tokens(subject, seed, asked=True)
            assert found == expected, "requests get other tokens when the command is called"

        within(ask, "an engine with calls of the command")

    def test_requests_are_not_kept(self, make: PartMaker, subject: Subject) -> None:
        """Requires nothing.
        Does: calls it while requests run, ends them, and calls it again.
        Must: keep no reference to them: what is lent is lent for the call.
        """
        bench = CommandBench(make, subject)
        requests = _crowd(bench, 8)
        answers = [bench.run()]
        names = {request.request_id for request in requests}
        for request in requests:
            bench.kernel.abort(request)
        answers.append(bench.run())
        del requests, request
        gc.collect()
        kept = {
            each.request_id
            for each in gc.get_objects()
            if isinstance(each, Request) and each.finished and each.request_id in names
        }
        assert not kept, f"{len(kept)} requests that have ended are kept by the command"

    # Life cycle and cost

    def test_it_is_made_and_closed_quietly(self, make: PartMaker, subject: Subject) -> None:
        """Requires nothing.
        Does: makes it before anything is lent, closes it unused; makes another, calls and closes
        it.
        Must: raise in neither, and leave no thread or process behind.
        """
        leftovers = Leftovers()

        def live() -> None:
            CommandBench(make, subject).command.close()
            bench = CommandBench(make, subject)
            _crowd(bench, 4)
            bench.run()
            bench.command.close()

        within(live, "a command that is made, called and closed")
        left = leftovers.names()
        assert not left, f"after close there is still: {', '.join(left)}"

    def test_its_cost_follows_the_number_of_requests(
        self, make: PartMaker, subject: Subject
    ) -> None:
        """Requires nothing.
        Does: counts the lines that a call executes with 10 and with 500 requests.
        Must: grow no faster than their number, for all of them wait meanwhile.
        """
        costs = []
        for number in CROWDS:
            bench = CommandBench(make, subject)
            _crowd(bench, number)
            costs.append(lines_of(bench.run))
        small, large = costs
        few, many = CROWDS
        bound = 2 * small * many // few + 100
        assert large <= bound, (
            f"a call executes {small} lines with {few} requests, {large} with {many}: more than "
            f"in proportion ({bound})"
        )


def _arguments_of(subject: Subject) -> type[msgspec.Struct]:
    bench = CommandBench(PartMaker(subject), subject)
    struct: type[msgspec.Struct] = bench.command.Arguments
    bench.command.close()
    return struct


def _in_engine(subject: Subject, work: Callable[[Engine], T], what: str) -> T:
    """In one thread, since a command may keep to the one that it was made in."""

    def run() -> T:
        with busy_engine(subject) as engine:
            return work(engine)

    return within(run, what)


def _refusals(engine: Engine, subject: Subject) -> list[str]:
    """Why one call gave no answer; empty if it did."""
    try:
        engine.command(subject.provider, call_arguments(subject))
    except (InvalidRequestError, CommandError) as error:
        return [str(error)]
    return []


def _errors(engine: Engine, subject: Subject) -> int:
    """Failures of the command that the kernel has counted."""
    (report,) = (each for each in engine.plugins() if each.name == subject.name)
    return report.errors.get(HOOK, 0)


def _tokens(subject: Subject, seed: int, *, asked: bool) -> dict[str, tuple[list[int], str | None]]:
    ended = {}
    with subject.launch(cache={"num_blocks": 12}) as engine:
        for number, prompt in enumerate(prompts_of(seed)):
            engine.engine.add_request(f"r{number}", prompt, greedy(1 + number % 8))
        while engine.engine.has_unfinished_requests():
            for output in engine.engine.step():
                completion = output.outputs[0]
                ended[output.request_id] = (list(completion.token_ids), completion.finish_reason)
            if asked:
                _refusals(engine, subject)
    return ended


def _crowd(bench: CommandBench, count: int) -> list[Request]:
    """Requests that wait, of which some come to run."""
    requests = [
        bench.kernel.add(3, 50, tenant=f"tenant-{number % 3}", priority=number % 2)
        for number in range(count)
    ]
    for _ in range(2):
        bench.kernel.step()
    return requests


def _facts(request: Request) -> tuple[Any, ...]:
    return (
        request.request_id,
        request.status,
        request.slot,
        request.priority,
        request.tenant,
        request.deadline,
        request.max_total_tokens,
        list(request.token_ids),
        msgspec.structs.astuple(request.sampling_params),
    )
