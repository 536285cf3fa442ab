"""Both halves of a side channel, which meet in encoded messages only, also in two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from framework.conformance.subject import Subject
from framework.conformance.worlds.patience import PATIENCE_S
from framework.conformance.worlds.recorded_steps import RecordedStep
from framework.core.side_channels.message_type import MessageType
from framework.plugins.boot import Boot
from framework.plugins.failure import describe
from framework.plugins.manager import PluginManager
from framework.transport.codec import Decoder, Encoder
from hookspecs.contracts.side_channel import CoreHalf, SideChannel, WorkerHalf
from hookspecs.info import ProcessRole
from hookspecs.types.step import ModelRunnerOutput, SchedulerOutput

__all__ = ["Pair", "main", "worker_elsewhere"]


class Pair:
    """The halves of two objects of a channel, one made as in the core process, one as in that of a
    worker. One thread."""

    def __init__(self, subject: Subject, rank: int = 0, **sections: Any) -> None:
        manager, name = subject.manager(**sections), subject.provider
        self.channel: SideChannel = manager.create("side_channel", name, rank=None)
        self.messages = MessageType(self.channel.Message)
        self.replies = MessageType(self.channel.Reply)
        self.core: CoreHalf = self.channel.create_core()
        there: SideChannel = manager.create("side_channel", name, rank=rank)
        self.worker: WorkerHalf = there.create_worker()

    def message(self, step: RecordedStep) -> bytes | None:
        """Of the core half, encoded and checked as by the kernel."""
        return _encoded(self.messages, self.core.message(step.scheduled))

    def work(self, step: RecordedStep, message: bytes | None) -> bytes | None:
        """The worker half's turn; its reply, encoded and checked."""
        self.begin(step, message)
        return self.reply(step)

    def begin(self, step: RecordedStep, message: bytes | None) -> None:
        """The worker half gets a message, as before the forward."""
        self.worker.on_step(step.scheduled, _decoded(self.messages, message))

    def reply(self, step: RecordedStep) -> bytes | None:
        """Of the worker half to a step that was sampled, encoded and checked."""
        return _encoded(self.replies, self.worker.reply(step.scheduled, step.output))

    def answer(self, step: RecordedStep, reply: bytes | None) -> None:
        """A reply reaches the core half."""
        if reply is not None:
            self.core.on_reply(step.scheduled, self.replies.decode(reply))

    def run(self, step: RecordedStep) -> tuple[bytes | None, bytes | None]:
        """A whole step: message and reply."""
        message = self.message(step)
        reply = self.work(step, message)
        self.answer(step, reply)
        return message, reply

    def close(self) -> None:
        """In the order of the kernel."""
        self.worker.close()
        self.core.close()


class _Work(msgspec.Struct, frozen=True, kw_only=True):
    boot: Boot
    provider: str
    steps: list[tuple[list[bytes], list[bytes]]]
    """Frames of what was scheduled, and of its result."""
    messages: list[bytes | None]


class _Done(msgspec.Struct, frozen=True, kw_only=True):
    replies: list[bytes | None] = []
    failure: str = ""


def worker_elsewhere(
    subject: Subject, steps: Sequence[RecordedStep], messages: list[bytes | None]
) -> list[bytes | None]:
    """The replies of a worker half in a process of its own. AssertionError with what went wrong
    there, PluginLoadError when the plugin can not be imported in another process."""
    encoder = Encoder()

    def frames(value: SchedulerOutput | ModelRunnerOutput) -> list[bytes]:
        return [bytes(frame) for frame in encoder.encode(value)]

    work = _Work(
        boot=subject.manager().boot(ProcessRole.WORKER),
        provider=subject.provider,
        steps=[(frames(step.scheduled), frames(step.output)) for step in steps],
        messages=messages,
    )
    ended = subprocess.run(
        [sys.executable, "-m", __name__],
        input=msgspec.msgpack.encode(work),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.stdout, f"the process of the worker half ended with the code {ended.returncode}"
    done = msgspec.msgpack.decode(ended.stdout, type=_Done)
    assert not done.failure, f"in a process of its own the worker half failed: {done.failure}"
    return done.replies


def main() -> int:
    """In the process of a worker: the exit code."""
    work = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Work)
    try:
        done = _Done(replies=_replies(work))
    except Exception as error:
        done = _Done(failure=describe(error))
    sys.stdout.buffer.write(msgspec.msgpack.encode(done))
    return 0


def _replies(work: _Work) -> list[bytes | None]:
    plugins = PluginManager.from_boot(work.boot)
    channel: SideChannel = plugins.create("side_channel", work.provider, rank=0)
    messages, replies = MessageType(channel.Message), MessageType(channel.Reply)
    half, given = channel.create_worker(), []
    scheduled, outputs = Decoder(SchedulerOutput), Decoder(ModelRunnerOutput)
    for (step, result), message in zip(work.steps, work.messages, strict=True):
        decoded = scheduled.decode(step)
        half.on_step(decoded, _decoded(messages, message))
        given.append(_encoded(replies, half.reply(decoded, outputs.decode(result))))
    half.close()
    return given


def _encoded(kind: MessageType, value: Any) -> bytes | None:
    return None if value is None else kind.encode(value)


def _decoded(kind: MessageType, data: bytes | None) -> Any:
    return None if data is None else kind.decode(data)


if __name__ == "__main__":
    sys.exit(main())
