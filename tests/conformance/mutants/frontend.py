"""Broken front ends: of a protocol of lines, and of the built-in server. One that a server runs
with has a plugin with a name here."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, ClassVar

import msgspec

from builtin_plugins.openai_server.options import OpenAIOptions
from builtin_plugins.openai_server.server import OpenAIServer
from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.frontend import Frontend, FrontendContext
from hookspecs.errors import FrameworkError
from tests.conformance.mutants.mutant import Mutant, providing

__all__ = ["MUTANTS"]

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter


class _Lines(Frontend):
    """Answers each line with the number of tokens that it gets for it; right in all that its
    subclasses do not replace."""

    def __init__(self, context: FrontendContext) -> None:
        super().__init__(context)
        self.tasks: set[asyncio.Task[Any]] = set()

    def listener(self) -> socket.socket:
        return socket.socket(fileno=os.dup(self.context.listen_fd))

    async def serve(self) -> None:
        server = await asyncio.start_server(self.accept, sock=self.listener())
        try:
            await self.wait()
        finally:
            server.close()
            await self.stop()

    async def wait(self) -> None:
        await asyncio.Event().wait()

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def accept(self, reader: Reader, writer: Writer) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            await self.talk(reader, writer)
        except (OSError, ValueError):
            return
        finally:
            self.tasks.discard(task)
            writer.close()

    async def talk(self, reader: Reader, writer: Writer) -> None:
        while line := await reader.readline():
            writer.write(await self.answer(line) + b"\n")
            await writer.drain()

    async def answer(self, line: bytes) -> bytes:
        try:
            return str(await self.tokens(line)).encode()
        except FrameworkError as error:
            return f"error: {error}".encode()

    async def tokens(self, line: bytes) -> int:
        count = 0
        async for output in self.context.engine.generate(list(line), request_id=str(id(line))):
            count = len(output.outputs[0].token_ids)
        return count


class EndsByItself(_Lines):
    async def wait(self) -> None:
        await asyncio.sleep(0.01)


class NeverEnds(_Lines):
    """Goes on when it is cancelled."""

    async def wait(self) -> None:
        with suppress(asyncio.CancelledError):
            await super().wait()
        await super().wait()


class AcceptsWithoutAwait(_Lines):
    """Blocks the event loop."""

    async def serve(self) -> None:
        with self.listener() as listener:
            listener.settimeout(60)
            while True:
                listener.accept()[0].close()


class Mute(_Lines):
    async def answer(self, line: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""


class LeavesThemOpen(_Lines):
    """Leaves connections open when it ends."""

    async def stop(self) -> None:
        return


class Ticks(_Lines):
    """Leaves a task."""

    async def wait(self) -> None:
        self.ticking = asyncio.create_task(asyncio.Event().wait(), name="ticking")
        await super().wait()


class KeepsListeners(_Lines):
    """Descriptor leak: a duplicate is never closed."""

    def listener(self) -> socket.socket:
        os.dup(self.context.listen_fd)
        return super().listener()


class LeavesAThread(_Lines):
    _one: ClassVar[threading.Event] = threading.Event()

    async def wait(self) -> None:
        threading.Thread(target=self._one.wait, name="left behind", daemon=True).start()
        await super().wait()


class ClosesTheSocket(_Lines):
    """Takes what it is lent for its own."""

    def listener(self) -> socket.socket:
        return socket.socket(fileno=self.context.listen_fd)


class ShutsTheSocket(_Lines):
    """Closes a duplicate, but ends the listening of all."""

    async def serve(self) -> None:
        shared = self.listener()
        try:
            await super().serve()
        finally:
            shared.shutdown(socket.SHUT_RDWR)
            shared.close()


class EndsWithABadLine(_Lines):
    """One bad client ends it for all."""

    async def serve(self) -> None:
        self.bad = asyncio.Event()
        await super().serve()

    async def wait(self) -> None:
        await self.bad.wait()
        raise UnicodeError("a line is no text")

    async def answer(self, line: bytes) -> bytes:
        try:
            line.decode("ascii")
        except UnicodeError:
            self.bad.set()
        return await super().answer(line)


class OneClientAtATime(_Lines):
    """Starvation: an idle client keeps all others waiting."""

    def __init__(self, context: FrontendContext) -> None:
        super().__init__(context)
        self.turn = asyncio.Lock()

    async def talk(self, reader: Reader, writer: Writer) -> None:
        async with self.turn:
            await super().talk(reader, writer)


class SwallowsTheDeath(_Lines):
    """Asks an engine again until that answers."""

    async def tokens(self, line: bytes) -> int:
        while True:
            with suppress(FrameworkError):
                return await super().tokens(line)
            await asyncio.sleep(0.05)


class DiesOfTheEngine(_Lines):
    async def serve(self) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await super().serve()

    async def wait(self) -> None:
        await self.failed

    async def answer(self, line: bytes) -> bytes:
        try:
            return await super().answer(line)
        finally:
            if not self.context.engine.health().ready and not self.failed.done():
                self.failed.set_exception(RuntimeError("the engine"))


class MountsNothing(OpenAIServer):
    def __init__(self, context: FrontendContext) -> None:
        super().__init__(msgspec.structs.replace(context, routes={}))


class AsksForNoKey(OpenAIServer):
    """Ignores a setting."""

    def __init__(self, context: FrontendContext) -> None:
        serving = msgspec.structs.replace(context.config.serving, api_keys=())
        config = msgspec.structs.replace(context.config, serving=serving)
        super().__init__(msgspec.structs.replace(context, config=config))


class BoundsNoBody(OpenAIServer):
    """Ignores another."""

    def __init__(self, context: FrontendContext) -> None:
        serving = msgspec.structs.replace(context.config.serving, max_body_bytes=1 << 24)
        config = msgspec.structs.replace(context.config, serving=serving)
        super().__init__(msgspec.structs.replace(context, config=config))


class KnowsThePretender(_Lines):
    """Asks for what an `EngineClient` need not have."""

    async def wait(self) -> None:
        engine: Any = self.context.engine
        engine.calls.total()
        await super().wait()


class KnowsThePretenderPlugin(EngineHooks):
    """Not in the process of the engine core."""

    PLUGIN = PluginInfo(
        name="mutant", api=">=1.0,<2", roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.FRONTEND})
    )

    @hookimpl
    def register_frontends(self) -> Iterable[Provider[Any]]:
        yield Provider("mutant", f"{__name__}:KnowsThePretender")


def _mutant(fault: str, part: type[Frontend], *caught_by: str) -> Mutant:
    fields = {"options": OpenAIOptions} if issubclass(part, OpenAIServer) else {}
    return Mutant("frontend", fault, providing("frontend", part, **fields), caught_by)


MUTANTS = [
    _mutant("ends by itself", EndsByItself, "test_it_serves_until_it_is_cancelled"),
    _mutant("never ends", NeverEnds, "test_it_serves_until_it_is_cancelled"),
    _mutant("blocks the loop", AcceptsWithoutAwait, "test_it_serves_until_it_is_cancelled"),
    _mutant("never answers", Mute, "test_it_answers"),
    _mutant("leaves connections open", LeavesThemOpen, "test_open_connections_are_closed"),
    _mutant("leaves a task", Ticks, "test_nothing_is_left"),
    _mutant("leaves open files", KeepsListeners, "test_nothing_is_left"),
    _mutant("leaves a thread", LeavesAThread, "test_nothing_is_left"),
    _mutant("closes the socket", ClosesTheSocket, "test_the_socket_is_not_its_own"),
    _mutant("shuts the socket down", ShutsTheSocket, "test_the_socket_is_not_its_own"),
    _mutant("ends with a bad client", EndsWithABadLine, "test_garbage_harms_nobody"),
    _mutant("one client at a time", OneClientAtATime, "test_many_clients_may_come"),
    _mutant(
        "swallows the engine's death",
        SwallowsTheDeath,
        "test_an_engine_in_trouble_does_not_end_it",
    ),
    _mutant("dies of the engine", DiesOfTheEngine, "test_an_engine_in_trouble_does_not_end_it"),
    _mutant("mounts no routes", MountsNothing, "test_routes_are_mounted"),
    _mutant("asks for no key", AsksForNoKey, "test_routes_are_behind_keys"),
    _mutant("bounds no body", BoundsNoBody, "test_routes_get_bounded_bodies"),
    Mutant(
        "frontend",
        "knows the pretender",
        KnowsThePretenderPlugin(),
        ("test_a_server_runs_with_it",),
    ),
]
