"""Exit codes, messages, versions, settings of every command, commands of plugins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from framework.cli.main import main
from framework.plugins.snapshot import build_snapshot


def _json(argv: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    assert main([*argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_config_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "engine.toml"
    file.write_text("[cache]\nblock_size = 8\n")
    argv = ["config", "show", "--config", str(file), "--serving.api_keys", "hush"]
    found = _json(argv, capsys)
    assert found["config"]["cache"]["block_size"] == 8
    assert found["origins"]["cache.block_size"] == f"file {file}"
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "cache.block_size = 8 " in out
    assert "hush" not in out


def test_settings_may_come_before_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    found = _json(["--cache.block_size", "8", "config", "show"], capsys)
    assert found["config"]["cache"]["block_size"] == 8


def test_config_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert "EngineConfig" in _json(["config", "schema"], capsys)["$defs"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["config", "show", "--cache.blok_size=1"], "Did you mean cache.block_size?"),
        (["config", "show", "--config", "/no/such.toml"], "does not exist"),
        (["config", "show", "--cache.block_size"], "a value is missing"),
        (["config", "sho"], "invalid choice: 'sho'"),
        (["confg", "show"], "invalid choice: 'confg'"),
        (["config"], "required: COMMAND"),
        ([], "required: COMMAND"),
        (["generate", "--max-tokens=x"], "invalid int value: 'x'"),
        (["generate", "m", "--unknown"], "unrecognized arguments: --unknown"),
    ],
)
def test_usage_errors_exit_with_2(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    found = capsys.readouterr()
    assert said in found.err
    assert "Traceback" not in found.err
    assert found.out == ""


def test_debug_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FRAMEWORK_DEBUG", "1")
    assert main(["config", "show", "--cache.blok_size=1"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("engine-framework ")
    assert "plugin API 1." in out


def test_plugins_list_and_show(installer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    installer.install()
    [greet] = [found for found in _json(["plugins", "list"], capsys) if found["name"] == "greet"]
    assert greet["state"] == "active"
    assert (greet["distribution"], greet["version"]) == ("greet-dist", "1.2")
    assert greet["providers"] == ["cli_command:greet"]
    assert _json(["plugins", "show", "greet"], capsys) == greet

    assert main(["plugins", "list"]) == 0
    out = capsys.readouterr().out
    assert "greet-dist 1.2" in out
    assert "register_cli_commands" in out
    assert main(["plugins", "show", "greet"]) == 0
    assert "greet: Says hello." in capsys.readouterr().out
    assert main(["plugins", "show", "gret"]) == 2
    assert "Did you mean greet?" in capsys.readouterr().err


def test_a_blocked_plugin_is_listed_with_the_reason(
    installer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    installer.install()
    assert main(["plugins", "list", "--plugins.block=greet"]) == 0
    assert "greet is disabled: " in capsys.readouterr().out


def test_a_plugin_command(installer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    installer.install()
    assert main(["greet", "--name=me", "--cache.block_size=8", "--", "--a.b", "c"]) == 7
    assert capsys.readouterr().out == "hello me ['--a.b', 'c'] 8\n"
    assert main(["--help"]) == 0
    assert "say hello, 100 %" in capsys.readouterr().out
    assert main(["greet", "--unknown"]) == 2
    assert "usage: framework greet" in capsys.readouterr().err


def test_what_stands_before_a_plugin_command_is_not_dropped(
    installer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    installer.install()
    assert main(["--nmae", "greet", "--name=me"]) == 2
    assert "unrecognized arguments: --nmae" in capsys.readouterr().err


def test_help_and_errors_of_a_plugin_command_know_of_settings(
    installer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    installer.install()
    assert main(["greet", "--help"]) == 0
    assert "--section.key=value" in capsys.readouterr().out
    assert main(["greet", "--block-size=8"]) == 2
    assert "--cache.block_size" in capsys.readouterr().err


def test_a_command_that_activation_keeps_out_is_named(
    installer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    installer.install()
    assert main(["greet", "--plugins.activation=listed"]) == 2
    said = capsys.readouterr().err
    assert "plugins.enable does not name it" in said
    assert "invalid choice: 'greet'" in said and "generate" in said


def test_a_mistyped_command_has_its_choices_whatever_is_absent(
    installer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    installer.install()
    for setting in ("--plugins.activation=listed", "--plugins.activation=auto"):
        assert main(["genrate", setting]) == 2
        said = capsys.readouterr().err
        assert "usage: framework" in said and "invalid choice: 'genrate'" in said
        assert "serve" in said and "Did you mean generate?" in said
        assert ("plugins.enable does not name it" in said) is setting.endswith("listed")


def test_config_show_checks_plugin_options_and_shows_the_settings_all_the_same(
    installer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "show", "--json", "--plugins.options.json_lines.pth=x"]) == 2
    found = capsys.readouterr()
    assert "plugins.options.json_lines has no option 'pth'" in found.err
    assert "cache" in json.loads(found.out)["config"]


def test_a_command_that_is_built_in_comes_before_that_of_a_plugin(
    installer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    installer.install(command="config")
    assert main(["--help"]) == 0
    said = capsys.readouterr()
    assert "greet-dist" in said.err and "'config', which is built in" in said.err
    assert said.out.count("\n    config ") == 1
    assert main(["config", "show"]) == 0


def test_a_closed_pipe_is_quiet() -> None:
    read, write = os.pipe()
    os.close(read)
    code = "import sys; from framework.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "config", "schema"]
    with os.fdopen(write, "w") as stdout:
        run = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)
    assert (run.returncode, run.stderr) == (141, "")


def test_light_commands_import_no_model_library() -> None:
    code = (
        "import sys; from framework.cli.main import main; "
        "main(['config', 'schema']); main(['plugins', 'list', '--json']); "
        "print([m for m in ('torch', 'transformers', 'rich') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"


def test_plugins_check(installer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    installer.install()
    assert _json(["plugins", "check", "greet"], capsys)["findings"] == []
    assert main(["plugins", "check", "greet"]) == 0
    assert "greet fits plugin API 1." in capsys.readouterr().out
    assert main(["plugins", "check", "gret"]) == 1
    assert "Did you mean greet?" in capsys.readouterr().err


def test_plugins_check_tells_what_is_wrong(
    installer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    installer.install(module="raise RuntimeError('no good')")
    assert main(["plugins", "check", "greet", "--json"]) == 1
    assert "no good" in json.loads(capsys.readouterr().out)["findings"][0]


def test_plugins_diff(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    current = build_snapshot()
    version = ".".join(map(str, current["api_version"]))
    old = tmp_path / "api.json"
    del current["hooks"]["on_cache_reset"]
    old.write_text(json.dumps(current))
    found = _json(["plugins", "diff", str(old), version], capsys)
    assert found["bump"] == "minor"
    [change] = found["changes"]
    assert (change["kind"], change["text"]) == ("additive", "added")
    assert main(["plugins", "diff", version, str(old)]) == 0
    out = capsys.readouterr().out
    assert "breaking" in out
    assert "1 change(s); the version they need: major" in out
    assert main(["plugins", "diff", version, version]) == 0
    assert "0 change(s)" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["{", "{}", "[]"])
def test_plugins_diff_of_other_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    other = tmp_path / "other.json"
    other.write_text(text)
    for which in (str(other), "0.1"):
        assert main(["plugins", "diff", which, which]) == 2
        assert repr(which) in capsys.readouterr().err
