"""A plugin whose engine commands look, call workers, or go wrong in a way that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.engine_command import EngineCommand, EngineCommandContext
from hookspecs.errors import CommandError, InvalidRequestError

__all__ = ["Look", "Trouble", "commands"]


LONG = "x" * (1 << 20)


class Look(EngineCommand):
    """What it is lent, in numbers."""

    made: ClassVar[list[Look]] = []
    closed: ClassVar[list[Look]] = []

    def __init__(self, context: EngineCommandContext) -> None:
        super().__init__(context)
        self.made.append(self)

    def run(self, arguments: Any) -> dict[str, Any]:
        engine = self.context.engine
        requests = engine.requests()
        tenants = sorted({request.tenant for request in requests})
        return {
            "engine_index": self.context.engine_index,
            "ids": tuple(request.request_id.partition("-")[0] for request in requests),
            "running": engine.scheduler.num_running,
            "waiting": engine.scheduler.num_waiting,
            "blocks": [engine.scheduler.blocks_needed(request) for request in requests],
            "served": {tenant: engine.scheduler.served_tokens(tenant) for tenant in tenants},
            "free": engine.cache.num_free_blocks,
            "total": engine.cache.num_total_blocks,
        }

    def close(self) -> None:
        self.closed.append(self)


class Several(EngineCommand):
    """One truth value an engine."""

    def run(self, arguments: Any) -> bool:
        return self.context.engine_index == 0


class Wanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of each form."""

    word: Annotated[str, Meta(max_length=8)]
    times: Annotated[int, Meta(ge=1, le=3)] = 1
    numbers: tuple[int, ...] = ()


class Echo(EngineCommand):
    """Its arguments, which arrived as their struct."""

    Arguments = Wanted

    def run(self, arguments: Wanted) -> Wanted:
        assert type(arguments) is Wanted
        return arguments


class WorkerCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command of the workers."""

    command: str
    args: tuple[Any, ...] = ()


class Workers(EngineCommand):
    """What the workers answer."""

    Arguments = WorkerCall

    def run(self, arguments: WorkerCall) -> list[Any]:
        return self.context.engine.call_workers(arguments.command, arguments.args)


class InAThread(EngineCommand):
    """What another thread is told when it reads the engine."""

    def run(self, arguments: Any) -> list[str]:
        engine = self.context.engine
        reads: list[Callable[[], object]] = [
            lambda: engine.scheduler,
            lambda: engine.cache,
            engine.requests,
            lambda: engine.call_workers("list_adapters"),
        ]
        with ThreadPoolExecutor(1) as pool:
            return [repr(pool.submit(read).exception()) for read in reads]


class How(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The name of a trouble."""

    how: str

    def __post_init__(self) -> None:
        if self.how == "arguments":
            raise KeyError(self.how)
        if self.how == "value":
            raise ValueError("how must be better")
        if self.how == "long value":
            raise ValueError(LONG)


class Unspeakable(Exception):
    """Can not be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Trouble(EngineCommand):
    """Raises, or answers what can not be encoded."""

    Arguments = How

    def run(self, arguments: How) -> Any:
        match arguments.how:
            case "invalid":
                raise InvalidRequestError("how is wrong for me", param="how", value="invalid")
            case "refuse":
                raise CommandError("not now")
            case "long invalid":
                raise InvalidRequestError(LONG)
            case "long refusal":
                raise CommandError(LONG)
            case "long":
                raise RuntimeError(LONG)
            case "zero":
                return 1 / 0
            case "timeout":
                raise TimeoutError("the workers took too long")
            case "exit":
                raise SystemExit(3)
            case "unspeakable":
                raise Unspeakable
            case "object":
                return {"a": object()}
            case "surrogate":
                return "\ud800"
            case "large":
                return 2**70
            case _:
                return None

    def close(self) -> None:
        raise RuntimeError("does not close")


class CommandsForTests(EngineHooks):
    """Offers them all."""

    PLUGIN = PluginInfo(name="commands-for-tests", api=">=1.0,<2")

    def __init__(self) -> None:
        self.failed: list[Any] = []

    @hookimpl
    def register_engine_commands(self) -> Iterable[Provider[EngineCommand]]:
        for name, kind in (
            ("echo", Echo),
            ("look", Look),
            ("several", Several),
            ("thread", InAThread),
            ("trouble", Trouble),
            ("workers", Workers),
        ):
            yield Provider(name, f"{__name__}:{kind.__name__}")

    @hookimpl
    def on_plugin_failed(self, event: Any) -> None:
        self.failed.append(event)


commands = CommandsForTests()
