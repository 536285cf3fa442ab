"""`python -m benchmarks` has every benchmark that there is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import benchmarks
from benchmarks.__main__ import COMMANDS, main


def modules_with_main() -> Iterator[str]:
    for path in Path(str(benchmarks.__file__)).parent.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = [each.name for each in tree.body if isinstance(each, ast.FunctionDef)]
        if "main" in names and path.stem != "__main__":
            yield path.stem


def test_every_module_with_a_main_is_a_command() -> None:
    assert sorted(modules_with_main()) == sorted(each.module for each in COMMANDS.values())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = import_module(f"benchmarks.{COMMANDS[name].module}")
    with pytest.raises(SystemExit) as stopped:
        command.main(["--help"])
    assert stopped.value.code == 0
    assert f"python -m benchmarks {name}" in capsys.readouterr().out


def test_without_a_name_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(any(line.startswith(f"{name} ") for line in lines) for name in COMMANDS)


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tokenz"]) == 2
    assert "unknown benchmark 'tokenz'" in capsys.readouterr().err
