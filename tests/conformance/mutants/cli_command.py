"""Broken CLI commands."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

from hookspecs.contracts.frontend import CliCommand, CliContext
from tests.conformance.mutants.mutant import Mutant, providing

__all__ = ["MUTANTS"]


class Doubles(CliCommand):
    """A right one: prints twice a number."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--number", type=int, default=1, help="which number")

    def run(self, arguments: Namespace, rest: Sequence[str] = ()) -> int:
        print(2 * arguments.number)
        return 0


class PercentInHelp(Doubles):
    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--share", help="a share in %, of 100%")


class IgnoresUnknown(Doubles):
    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parsing: Any = parser
        parsing.parse_args = lambda argv: parser.parse_known_args(argv)[0]


class NamedLikeASetting(Doubles):
    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--plan.blocks", type=int)


class CountsParsers(Doubles):
    number = 0

    def add_arguments(self, parser: ArgumentParser) -> None:
        self.number += 1
        parser.add_argument(f"--number{self.number}")


class ReadsTheCommandLine(Doubles):
    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        if "--verbose" in sys.argv:
            parser.add_argument("--level")


class Greets(Doubles):
    def __init__(self, context: CliContext) -> None:
        super().__init__(context)
        print("welcome")


class ReturnsNothing(Doubles):
    def run(self, arguments: Namespace, rest: Sequence[str] = ()) -> int:
        return None  # type: ignore[return-value]


class FailsAlways(Doubles):
    def run(self, arguments: Namespace, rest: Sequence[str] = ()) -> int:
        return 3


class ParsesLate(Doubles):
    """A number of the wrong form is a traceback."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("number", nargs="?", default="1")

    def run(self, arguments: Namespace, rest: Sequence[str] = ()) -> int:
        print(2 * int(arguments.number))
        return 0


class WantsNoRest(Doubles):
    def run(self, arguments: Namespace, rest: Sequence[str] = ()) -> int:
        () = rest
        return 0


def _mutant(
    fault: str, part: type[CliCommand], *caught_by: str, arguments: Sequence[str] = ()
) -> Mutant:
    plugin = providing("cli_command", part, description="Prints twice a number.")
    examples = {"cli_command:mutant": {"arguments": list(arguments)}}
    return Mutant("cli_command", fault, plugin, caught_by, examples=examples)


MUTANTS = [
    _mutant("a percent sign in its help", PercentInHelp, "test_help_is_printed"),
    _mutant("ignores what it does not know", IgnoresUnknown, "test_unknown_arguments_are_refused"),
    _mutant("an option with a dot", NamedLikeASetting, "test_its_options_reach_it"),
    _mutant("declares other arguments each time", CountsParsers, "test_each_parser_gets_the_same"),
    _mutant("reads sys.argv", ReadsTheCommandLine, "test_the_command_line_is_not_read"),
    _mutant("prints when it is made", Greets, "test_nothing_is_printed_before_it_runs"),
    _mutant("returns None", ReturnsNothing, "test_it_does_its_work"),
    _mutant(
        "fails at its own example",
        FailsAlways,
        "test_it_does_its_work",
        arguments=("--number", "4"),
    ),
    _mutant("a traceback for a wrong number", ParsesLate, "test_odd_arguments_are_answered"),
    _mutant("stumbles over a rest", WantsNoRest, "test_the_rest_is_taken"),
]
