"""Suite of side channels: both halves over recorded steps, in two processes, and in an engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
import pytest

from framework.conformance.base import Conformance
from framework.conformance.subject import Subject
from framework.conformance.worlds.detached import used_in_an_engine
from framework.conformance.worlds.growth import bytes_kept
from framework.conformance.worlds.leftovers import Leftovers
from framework.conformance.worlds.makers import PartMaker
from framework.conformance.worlds.patience import PATIENCE_S, within
from framework.conformance.worlds.recorded_steps import (
    RecordedStep,
    crowded_step,
    plain,
    recorded_steps,
)
from framework.conformance.worlds.side_channels import Pair, worker_elsewhere
from framework.conformance.worlds.workload import seeds
from framework.plugins.readable import unreadable
from hookspecs.contracts.side_channel import CoreHalf, WorkerHalf

__all__ = ["SideChannelConformance"]

T = TypeVar("T")
PROMPT_S: Final = 3.0
"""Seconds for some hundred steps: far more than they take, also with a file written in each."""
ROWS: Final = 1024
"""Of a large step."""
PROMPT: Final = 512
"""Tokens of each of its requests."""
TELLING: Final = 3
"""Pairs of steps with replies of their own that show how a half attributes them."""
KEPT: Final = 24.0
"""Bytes for each step that waits for an answer: less than any object in a list."""


class SideChannelConformance(Conformance):
    """Two halves exchange a message with every step, change nothing, and need nothing else."""

    kind = "side_channel"

    @pytest.fixture
    def steps(self, subject: Subject, seed: int) -> list[RecordedStep]:
        """Of random workloads, one after the other as of one engine."""
        make = PartMaker(subject)
        steps: list[RecordedStep] = []
        for number in seeds(seed, 3):
            steps += recorded_steps(make, number)
        for number, step in enumerate(steps):
            step.scheduled.step = number + 1
        return steps

    # Messages

    def test_both_halves_can_be_made(self, subject: Subject) -> None:
        """Requires nothing.
        Does: makes the channel for the core and for workers of two ranks, and the half of each.
        Must: declare a Message, and types that msgspec can decode; give a CoreHalf and
        WorkerHalfs.
        """
        channel = subject.create(rank=None)
        assert getattr(channel, "Message", None) is not None, "it declares no Message"
        for attribute in ("Message", "Reply"):
            why = unreadable(getattr(channel, attribute))
            assert why is None, f"msgspec can not decode its {attribute}: {why}"
        core = channel.create_core()
        assert isinstance(core, CoreHalf), f"create_core gave {core!r}, no CoreHalf"
        core.close()
        for rank in (0, 1):
            worker = subject.create(rank=rank).create_worker()
            assert isinstance(worker, WorkerHalf), f"create_worker gave {worker!r}, no WorkerHalf"
            worker.close()

    def test_messages_arrive_as_they_were_sent(
        self, subject: Subject, steps: list[RecordedStep]
    ) -> None:
        """Requires nothing.
        Does: runs both halves over steps with preemptions, aborts and rows that fail, in lock
        step.
        Must: raise nowhere, and give messages and replies that fit their types and are the same
        encoded again.
        """

        def live() -> None:
            pair = Pair(subject)
            for step in steps:
                message, reply = pair.run(step)
                for kind, data in ((pair.messages, message), (pair.replies, reply)):
                    if data is not None:
                        again = msgspec.msgpack.encode(kind.decode(data))
                        assert again == data, f"{kind.decode(data)} is another, encoded again"
            pair.close()

        _run(live, "a side channel")

    def test_messages_stay_small(self, subject: Subject) -> None:
        """Requires nothing.
        Does: runs a step in which 1,024 requests with long prompts start.
        Must: give a message and a reply of at most 1 MiB, or the half is detached when it
        matters most.
        """
        sections: dict[str, Any] = {
            "scheduler": {"max_num_seqs": ROWS, "max_num_batched_tokens": ROWS * PROMPT}
        }

        def live() -> None:
            pair = Pair(subject, **sections)
            pair.run(crowded_step(ROWS, PROMPT))
            pair.close()

        _run(live, "a side channel with a large step")

    def test_what_is_lent_is_not_changed(self, subject: Subject, steps: list[RecordedStep]) -> None:
        """Requires nothing.
        Does: compares steps and results before and after the halves have seen them.
        Must: leave both as they are; they are the kernel's.
        """

        def live() -> None:
            pair = Pair(subject)
            for step in steps:
                before = plain(step.scheduled), plain(step.output)
                pair.run(step)
                assert plain(step.scheduled) == before[0], "a half changed what was scheduled"
                assert plain(step.output) == before[1], "a half changed the result of a step"
            pair.close()

        _run(live, "a side channel")

    # Without each other

    def test_a_half_goes_on_without_the_other(
        self, subject: Subject, steps: list[RecordedStep], seed: int
    ) -> None:
        """Requires nothing.
        Does: loses messages and replies, now and then and all of them, as when the other half is
        detached.
        Must: raise nowhere; a worker half gets None, a core half no answer.
        """

        def live() -> None:
            for lost in (2, 3, 1):
                pair = Pair(subject)
                for number, step in enumerate(steps):
                    message = pair.message(step)
                    reply = pair.work(step, None if number % lost == 0 else message)
                    if number % (lost + 1):
                        pair.answer(step, reply)
                pair.close()

        _run(live, "a side channel that loses messages")

    def test_nothing_is_kept_for_an_answer(
        self, subject: Subject, steps: list[RecordedStep]
    ) -> None:
        """Requires nothing.
        Does: lets the core half send thousands of messages that nobody answers, and the worker
        half get none.
        Must: keep nothing for each step; let the answer bring back what is needed.
        """

        def live() -> float:
            pair = Pair(subject)

            def tell(first: int, count: int) -> None:
                for number in range(first, first + count):
                    step = steps[number % len(steps)]
                    step.scheduled.step = number + 1
                    pair.message(step)
                    pair.work(step, None)

            kept = bytes_kept(tell, KEPT)
            pair.close()
            return kept

        kept = within(live, "a side channel that loses messages", PATIENCE_S)
        assert kept < KEPT, f"{kept:.0f} bytes are kept for each step without an answer"

    def test_several_steps_may_be_in_flight(
        self, subject: Subject, steps: list[RecordedStep]
    ) -> None:
        """Requires nothing.
        Does: sends a step before the reply to the one before it has come, on both sides; also one
        step after the other, for comparison.
        Must: raise nowhere, and reply to the step that `reply` is called with, not to that which
        began last; executors may do so. What is counted from step to step is counted in `reply`.
        """

        def live() -> None:
            pair = Pair(subject)
            replies = []
            for first, second in zip(steps[::2], steps[1::2], strict=False):
                messages = [pair.message(first), pair.message(second)]
                for step, message in zip((first, second), messages, strict=True):
                    pair.begin(step, message)
                for step in (first, second):
                    replies.append(pair.reply(step))
                    pair.answer(step, replies[-1])
            pair.close()
            alone = Pair(subject)
            expected = [alone.run(step)[1] for step in steps]
            alone.close()
            swapped = _replies_to_the_next(replies, expected)
            assert not swapped, (
                "with two steps in flight the reply to a step is that to the next one: keep what "
                "on_step tells by scheduled.step, and reply to the step that is given"
            )

        _run(live, "a side channel with two steps in flight")

    def test_the_halves_share_nothing(self, subject: Subject, steps: list[RecordedStep]) -> None:
        """Requires nothing.
        Does: runs the core half here, and the worker half in a process of its own.
        Must: work as in one process: what one half knows of the other is in the messages.
        """

        def live() -> None:
            few = steps[:40]
            pair = Pair(subject)
            messages = [pair.message(step) for step in few]
            replies = worker_elsewhere(subject, few, messages)
            here = [pair.work(step, message) for step, message in zip(few, messages, strict=True)]
            for step, reply in zip(few, replies, strict=True):
                pair.answer(step, reply)
            pair.close()
            missing = [bool(one) for one in here] != [bool(one) for one in replies]
            assert not missing, "in another process the worker half replies to other steps"

        within(live, "a side channel in two processes", 2 * PATIENCE_S)

    # Life

    def test_it_closes_quietly(self, subject: Subject, steps: list[RecordedStep]) -> None:
        """Requires nothing.
        Does: closes halves that saw no step, and such that saw many.
        Must: raise in neither, and leave no thread or process behind.
        """
        leftovers = Leftovers()

        def live() -> None:
            Pair(subject).close()
            pair = Pair(subject)
            for step in steps:
                pair.run(step)
            pair.close()

        _run(live, "a side channel that is closed")
        left = leftovers.names()
        assert not left, f"after close there is still: {', '.join(left)}"

    def test_an_engine_runs_as_without(self, subject: Subject) -> None:
        """Requires nothing.
        Does: generates with the channel and without, with preemptions, aborts and a request that
        fails.
        Must: change no token, and be detached nowhere.
        """
        with_it, failures = used_in_an_engine(subject)
        own = [each for each in failures if each.plugin == subject.name]
        assert not own, f"a half failed and was {own[0].action}: {own[0].error}"
        without, _ = used_in_an_engine(subject, engine={"side_channels": []})
        assert with_it == without, "tokens change when the channel is selected"


def _replies_to_the_next(replies: list[bytes | None], expected: list[bytes | None]) -> bool:
    """Whether each first of two in flight has the reply of the second, where those differ when one
    step follows the other. Of a few pairs that may be chance, as in figures that grow."""
    first, second = expected[: len(replies) : 2], expected[1 : len(replies) : 2]
    pairs = zip(replies[::2], first, second, strict=True)
    tell = [given == other for given, own, other in pairs if own != other]
    return len(tell) >= TELLING and all(tell)


def _run(live: Callable[[], T], what: str) -> T:
    """Both halves in one thread, promptly: each call is on the path of a step."""
    return within(live, what, PROMPT_S)
