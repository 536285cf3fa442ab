"""`framework conform`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from framework.cli.main import main

ONLY = ["--only", "test_keys_compare"]


def test_it_says_and_writes_what_came_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["conform", "policies", *ONLY, "--seed=7", "--report", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "policies: incomplete 1.0 (4 tests with seed 7" in out
    written = json.loads((tmp_path / "conform.json").read_text())
    assert written["verdict"] == "incomplete 1.0"
    assert written["seed"] == 7
    assert {test["name"] for test in written["tests"]} == {"test_keys_compare"}
    assert (tmp_path / "conform.md").is_file()
    assert (tmp_path / "badge.json").is_file()


def test_settings_come_from_the_command_line_and_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conform.toml").write_text(
        "[settings.plugins.options.priority]\npreempt_running = true\n"
        "[settings.cache]\nblock_size = 2\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["conform", "policies", *ONLY, "--cache.block_size=8", "--report", "r"]) == 0
    assert json.loads((tmp_path / "r" / "conform.json").read_text())["settings"] == {
        "plugins": {"options": {"priority": {"preempt_running": True}}},
        "cache": {"block_size": 8},
    }


def test_secrets_and_the_environment_stay_out_of_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAMEWORK_CACHE__BLOCK_SIZE", "8")
    monkeypatch.setenv("FRAMEWORK_SERVING__API_KEYS", "sesame")
    arguments = ["--serving.api_keys=sesame", "--plugins.options.priority.preempt_running=true"]
    assert main(["conform", "policies", *ONLY, *arguments, "--report", str(tmp_path)]) == 0
    text = (tmp_path / "conform.json").read_text()
    assert "sesame" not in text
    assert json.loads(text)["settings"] == {
        "plugins": {"options": {"priority": {"preempt_running": True}}}
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[setings]\n", "setings"),
        ("settings = 3\n", "settings"),
        ("= 3", "Invalid statement"),
        ("[expected_failures]\n'a::b' = ' '\n", "no reason"),
        ("[expected_failures]\n'a::b' = 'x'\n", "does not run for this plugin"),
        ("[settings.cache]\nblok_size = 2\n", "block_size"),
    ],
)
def test_a_file_that_is_wrong_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    assert main(["conform", "policies", "--file", str(path)]) == 2
    assert said in capsys.readouterr().err


def test_a_plugin_that_is_not_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", "polices"]) != 0
    said = capsys.readouterr().err
    assert "no plugin 'polices' is installed" in said
    assert "Did you mean policies?" in said


def test_without_pytest_it_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['pytest'] = None; from framework.cli.main import main; "
        "sys.exit(main(['conform', 'policies']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'engine-framework[conform]'" in done.stderr
    assert "Traceback" not in done.stderr
