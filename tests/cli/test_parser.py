"""What the command line says of flags that it does not know."""

from __future__ import annotations

import pytest

from framework.cli.main import main


def test_a_setting_without_its_section_is_shown_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "m", "--port", "8001"]) == 2
    assert "--serving.port" in capsys.readouterr().err


def test_an_unknown_flag_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "m", "--nonsense"]) == 2
    said = capsys.readouterr().err
    assert "--nonsense" in said and "section" not in said


def test_the_help_of_a_command_says_where_settings_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    assert "config show" in capsys.readouterr().out
