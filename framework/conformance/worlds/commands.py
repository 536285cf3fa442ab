"""Engine commands, over a mini kernel or in a real engine, and the arguments to call them with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import msgspec

from framework.conformance.subject import Subject
from framework.conformance.worlds.engines import greedy
from framework.conformance.worlds.makers import PartMaker, kernel_around
from framework.core.engine_view import LentEngine
from framework.launcher import Engine
from hookspecs.config import EngineConfig
from hookspecs.contracts.engine_command import EngineCommand
from hookspecs.errors import CommandError, InvalidRequestError

__all__ = ["ODD_VALUES", "CommandBench", "busy_engine", "call_arguments", "odd_calls"]

ODD_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, 0, 1, -1, 1000, 10**6, 2**63, -(2**63), 0.0, -1.5, float("inf"), float("nan")),
    *("", "a", "\0", "\N{SNOWMAN}", "x" * 300, [], [0], [""], ["a"] * 100, [None], {}, {"a": 1}),
)
"""What callers send."""


def call_arguments(subject: Subject) -> dict[str, Any]:
    """The example's, or none."""
    given = subject.examples.get("arguments", {})
    assert isinstance(given, dict), f"the example's arguments are {given!r}; they must be a table"
    return given


def odd_calls(given: dict[str, Any], struct: type[msgspec.Struct]) -> Iterator[dict[str, Any]]:
    """Arguments of which one is odd, and one that is not known."""
    for name in struct.__struct_encode_fields__:
        for value in ODD_VALUES:
            yield {**given, name: value}
    yield {**given, "conform_unknown": 1}


class CommandBench:
    """A command over a mini kernel, which lends requests for the time of a call. One thread."""

    def __init__(self, make: PartMaker, subject: Subject, **sizes: Any) -> None:
        sizes = {"num_blocks": 400, "max_num_seqs": 8, "policies": (), **sizes}
        self.kernel = kernel_around(make, **sizes)
        self._engine = LentEngine(
            self.kernel.view,
            self.kernel.kv,
            lambda: list(self.kernel.requests.values()),
            _no_workers,
        )
        self.command: EngineCommand = make.named(
            "engine_command", subject.provider, EngineConfig(), engine=self._engine, engine_index=0
        )
        self._given = call_arguments(subject)

    def arguments(self) -> Any:
        """Those of a valid call."""
        struct = self.command.Arguments
        try:
            return msgspec.convert(self._given, struct)
        except msgspec.ValidationError as error:
            name = self.command.context.name
            raise AssertionError(
                f"the kit can not call the command: {error}. Give the arguments of a valid call "
                f'in conform.toml, as arguments in the table [examples."engine_command:{name}"]'
            ) from error

    def run(self) -> Any:
        """One call; None where it refuses, as it may for want of workers."""
        arguments = self.arguments()
        with self._engine.lent():
            try:
                return self.command.run(arguments)
            except (InvalidRequestError, CommandError):
                return None


def _no_workers(name: str, args: Sequence[Any] = (), *, timeout: float | None = None) -> NoReturn:
    raise CommandError(f"there is no worker here, and so no command {name!r}")


@contextmanager
def busy_engine(subject: Subject, requests: int = 12) -> Iterator[Engine]:
    """An engine in which some run and others wait. They need not end."""
    with subject.launch() as engine:
        for number in range(requests):
            prompt = [1 + number, 2, 3, 4, 5]
            tenant = f"tenant-{number % 2}"
            engine.engine.add_request(f"r{number}", prompt, greedy(8), tenant=tenant)
        for _ in range(2):
            engine.engine.step()
        yield engine
