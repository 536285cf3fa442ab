"""Suite of CLI commands, run as `framework NAME` runs them."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from framework.conformance.base import Conformance
from framework.conformance.subject import Subject
from framework.conformance.worlds.command_line import is_setting, parser_of, run_command
from framework.conformance.worlds.patience import within
from framework.plugins.failure import describe
from framework.plugins.manager import PluginManager
from hookspecs.contracts.frontend import CliCommand
from hookspecs.errors import FrameworkError

__all__ = ["CliCommandConformance"]

UNKNOWN = "--conformance-unknown"
ODD = ("", "0", "-1", "nan", "\N{SNOWMAN}" * 3, "x" * 4000, "a b\nc", "{}%s")
"""What users may give for any argument."""


class CliCommandConformance(Conformance):
    """Commands parse their arguments as the others do, and end with an exit code.

    Example: `arguments`, a list with which the command does its work and ends with the code 0; it
    is run. Without them it is only run with none and with odd ones, and need not succeed.
    """

    kind = "cli_command"
    example_keys = frozenset({"arguments"})

    @pytest.fixture
    def arguments(self, subject: Subject) -> list[str]:
        """Those of the example, if there is one."""
        return [str(argument) for argument in subject.examples.get("arguments", ())]

    @pytest.fixture
    def plugins(self, subject: Subject) -> PluginManager:
        """The plugins of a command line."""
        return subject.manager()

    @pytest.fixture
    def new(self, plugins: PluginManager, subject: Subject) -> Callable[[], CliCommand]:
        """Makes the command."""
        return partial(plugins.create, "cli_command", subject.provider)

    @pytest.fixture(autouse=True)
    def _nobody_types(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO(""))

    # Its arguments

    def test_help_is_printed(
        self, plugins: PluginManager, subject: Subject, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Requires nothing.
        Does: runs it with `--help`.
        Must: print the help, which names the command and says what it is for, and end with the
        code 0.
        """
        code = _code(plugins, subject, ["--help"])
        printed = capsys.readouterr().out
        assert code == 0, f"--help ends with the code {code}"
        assert f"framework {subject.provider}" in printed, f"the help names no command: {printed}"
        description = subject.found.provider.description.strip()
        assert description, "its Provider has no description, so `framework --help` says nothing"

    def test_unknown_arguments_are_refused(
        self, plugins: PluginManager, subject: Subject, arguments: list[str]
    ) -> None:
        """Requires nothing.
        Does: runs it with an option that there is not.
        Must: end with the code 2, as all commands do.
        """
        code = _code(plugins, subject, [*arguments, UNKNOWN])
        assert code == 2, f"{UNKNOWN} ends with the code {code}"

    def test_its_options_reach_it(self, new: Callable[[], CliCommand]) -> None:
        """Requires nothing.
        Does: compares its options with the settings that every command takes, `--config` and
        `--section.key`.
        Must: have none of that form: they are taken out before the command parses the rest.
        """
        options = [
            name
            for action in parser_of(new(), "command")._actions
            for name in action.option_strings
        ]
        taken = [name for name in options if is_setting(name)]
        assert not taken, f"{', '.join(taken)} never reach the command; name them in another way"

    def test_each_parser_gets_the_same(self, new: Callable[[], CliCommand]) -> None:
        """Requires nothing.
        Does: lets one object and another declare their arguments to three parsers.
        Must: declare the same to each.
        """
        first = new()
        helps = [parser_of(command, "command").format_help() for command in (first, first, new())]
        assert len(set(helps)) == 1, "the help is not the same each time:\n" + "\n".join(helps)

    def test_the_command_line_is_not_read(
        self, new: Callable[[], CliCommand], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Requires nothing.
        Does: declares its arguments while `sys.argv` holds one thing, and another.
        Must: declare the same: what it is to parse is given to it.
        """
        helps = []
        for line in (["framework"], ["framework", "--verbose", "--help", "a", "7"]):
            monkeypatch.setattr(sys, "argv", line)
            helps.append(parser_of(new(), "command").format_help())
        assert helps[0] == helps[1], "its arguments depend on sys.argv"

    def test_nothing_is_printed_before_it_runs(
        self, new: Callable[[], CliCommand], capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Requires nothing.
        Does: makes the command and lets it declare its arguments.
        Must: print nothing to standard output, which belongs to what a command is asked for.
        """
        parser_of(new(), "command")
        printed = capsys.readouterr().out
        assert not printed, f"it printed {printed!r}"

    # Its end

    def test_it_does_its_work(
        self, plugins: PluginManager, subject: Subject, arguments: list[str]
    ) -> None:
        """Requires nothing.
        Does: runs it with the arguments of the example, else with none.
        Must: end with the code 0 where there is an example; else with any exit code, or an error
        of this project.
        """
        code = _code(plugins, subject, arguments)
        assert not arguments or code == 0, f"with {arguments} it ends with the code {code}"

    def test_odd_arguments_are_answered(
        self, plugins: PluginManager, subject: Subject, arguments: list[str]
    ) -> None:
        """Requires nothing.
        Does: puts odd texts in the place of each argument of the example, and behind the last.
        Must: end with an exit code or an error of this project, which says what is wrong; never
        with a traceback.
        """
        for odd in ODD:
            for at in range(len(arguments) + 1):
                _code(plugins, subject, [*arguments[:at], odd, *arguments[at + 1 :]])

    def test_the_rest_is_taken(
        self, plugins: PluginManager, subject: Subject, arguments: list[str]
    ) -> None:
        """Requires nothing.
        Does: runs it with words after a bare `--`.
        Must: take them or refuse them, but not stumble over them.
        """
        for rest in (["--"], ["--", "a", "--b", "--", ""]):
            _code(plugins, subject, [*arguments, *rest])


def _code(plugins: PluginManager, subject: Subject, argv: Sequence[str]) -> int:
    """The exit code with which the command line would end."""
    shown = " ".join(repr(word[:40]) for word in argv) or "no arguments"
    name, description = subject.provider, subject.found.provider.description

    def run() -> int:
        command: CliCommand = plugins.create("cli_command", name)
        return run_command(command, parser_of(command, name, description), argv)

    try:
        code: object = within(run, f"the command, given {shown},")
    except FrameworkError as error:
        assert str(error).strip(), f"with {shown} it raises {type(error).__name__} without a text"
        return 1
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1 if stop.code else 0
    except AssertionError:
        raise
    except BaseException as error:
        raise AssertionError(f"with {shown} it raises {describe(error)}") from error
    assert type(code) is int, f"with {shown} it returns {code!r}, no int"
    assert 0 <= code <= 255, f"with {shown} it returns {code}, no exit code"
    return code
