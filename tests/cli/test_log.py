"""What the log shows on standard error, and for how long."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from framework.cli.main import main

logger = logging.getLogger("framework.part")


def _logging(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine logs something at each level when it generates."""
    generate = engine.generate

    def logged(*arguments: Any, **more: Any) -> Any:
        logger.debug("quiet")
        logger.info("%d tokens/s", 7)
        logger.warning("%s is odd", "this")
        logging.getLogger("elsewhere").info("not ours")
        return generate(*arguments, **more)

    monkeypatch.setattr(engine, "generate", logged)


def test_a_command_shows_the_log(
    engine: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _logging(engine, monkeypatch)
    for _ in range(2):
        assert main(["generate", "m", "--prompt=a"], launch=engine.launch) == 0
        said = capsys.readouterr()
        assert said.out == ">>> a\necho a\n[2 tokens, stop]\n"
        assert said.err.splitlines() == [
            "framework: converting",
            "framework: prefix caching is off",
            "framework: 7 tokens/s",
            "framework: warning: this is odd",
        ]


def test_the_log_is_left_as_it_was(engine: Any) -> None:
    root = logging.getLogger("framework")
    before = (list(root.handlers), root.level)
    assert main(["generate", "m", "--prompt=a"], launch=engine.launch) == 0
    assert main(["generate", "--prompt=a"], launch=engine.launch) == 2
    assert (root.handlers, root.level) == before


def test_a_broken_plugin_is_told_once(installer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    installer.install(module="raise RuntimeError('no good')")
    assert main(["plugins", "list"]) == 0
    err = capsys.readouterr().err
    assert err.startswith("framework: warning: a broken plugin is left out: ")
    assert err.count("RuntimeError: no good") == 2  # in the message and its traceback
