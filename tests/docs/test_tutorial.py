"""The tutorial works as printed: its code blocks are carried out one after the other."""

from __future__ import annotations

import ast
import re
import shlex
import textwrap
from pathlib import Path

import pytest

from tests.docs.guide import ROOT, execute, write_metadata

PAGE = ROOT / "docs" / "plugins" / "tutorial.md"
BLOCK = re.compile(
    r"(?:(?:`(?P<method>\w+)` in )?`(?P<path>[\w/.-]+)`:\n\n)?"
    r"^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Shell:
    """Carries out what the page shows."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._code = 0

    def block(self, block: re.Match[str]) -> None:
        """One code block."""
        if block["language"] == "console":
            self._console(block["text"])
        elif block["method"]:
            self._replace(self.directory / block["path"], block["method"], block["text"])
        else:
            assert block["path"], f"a code block belongs to no file: {block['text'][:60]!r}"
            (self.directory / block["path"]).write_text(block["text"], encoding="utf-8")

    def _console(self, text: str) -> None:
        commands = re.split(r"^\$ ", text, flags=re.MULTILINE)
        assert commands[0] == "", "a block of the console begins with a command"
        for at, each in enumerate(commands[1:], start=1):
            command, _, shown = each.partition("\n")
            asked = at + 1 < len(commands) and commands[at + 1].startswith("echo $?")
            said = self._run(command)
            assert asked or self._code == 0, f"{command}\n{said}"
            assert_shown(shown, said)

    def _run(self, command: str) -> str:
        match shlex.split(command):
            case ["echo", "$?"]:
                said, self._code = str(self._code), 0
                return said
            case ["cd", name]:
                self.directory /= name
                return ""
            case ["cat", name]:
                return (self.directory / name).read_text(encoding="utf-8")
            case ["pip", "install", "-e", ".[dev]"]:
                write_metadata(self.directory)
                return ""
            case [program, *arguments]:
                self._code, said = execute(self.directory, program, *arguments)
                return said
        raise AssertionError(f"no command: {command!r}")

    def _replace(self, path: Path, method: str, text: str) -> None:
        """Put a method in the place of the one of that name."""
        source = path.read_text(encoding="utf-8")
        (old,) = [
            node
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.FunctionDef) and node.name == method
        ]
        lines = source.splitlines(keepends=True)
        lines[old.lineno - 1 : old.end_lineno] = textwrap.indent(text, " " * old.col_offset)
        path.write_text("".join(lines), encoding="utf-8")


def assert_shown(shown: str, said: str) -> None:
    """The lines that a page shows come in the output, in order; `…` is what it leaves out, a line
    of it any number of lines. Spaces do not count."""
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    gap, at = False, 0
    for line in shown.splitlines():
        wanted = " ".join(line.split())
        if wanted == "…":
            gap = True
        elif wanted:
            pattern = re.compile(".*".join(map(re.escape, wanted.split("…"))))
            rest = lines[at:] if gap else lines[at : at + 1]
            found = [index for index, each in enumerate(rest) if pattern.fullmatch(each)]
            assert found, f"the page shows {line!r}, which was not said next:\n{said}"
            at += found[0] + 1
            gap = False
    assert gap or not shown.strip() or at == len(lines), f"more than the page shows:\n{said}"


def test_every_code_block_of_the_tutorial_works(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) == len(re.findall(r"^```\w", text, re.MULTILINE))
    shell = Shell(tmp_path)
    for block in blocks:
        shell.block(block)


@pytest.mark.parametrize(
    ("shown", "said"),
    [("a\n…\nc\n", "a\nb\nc\n"), ("a…\n", "abc"), ("…\nb\n", "b"), ("", "anything")],
)
def test_what_the_page_leaves_out_may_be_anything(shown: str, said: str) -> None:
    assert_shown(shown, said)


@pytest.mark.parametrize(
    ("shown", "said"), [("a\nc\n", "a\nb\nc\n"), ("a\n", "a\nb\n"), ("…\nc\n", "b"), ("a", "")]
)
def test_what_the_page_shows_must_be_said(shown: str, said: str) -> None:
    with pytest.raises(AssertionError):
        assert_shown(shown, said)
