"""`plugins.options`: a tree that merges over the sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from framework.config import load_config
from hookspecs.errors import ConfigError


def _options(*argv: str, **environ: str) -> dict[str, dict[str, Any]]:
    return load_config(argv=argv, environ=environ).config.plugins.options


def test_options_of_all_sources_merge(tmp_path: Path) -> None:
    file = tmp_path / "engine.toml"
    file.write_text("[plugins.options.p]\na = 1\nb = 2\nc = 3\n[plugins.options.p.deep]\nx = 1\n")
    resolved = load_config(
        {"plugins": {"options": {"p": {"c": 30}, "q": {}}}},
        file=file,
        environ={"FRAMEWORK_PLUGINS__OPTIONS__P__B": "20"},
        argv=["--plugins.options.p.deep.y=[1, 2]"],
    )
    assert resolved.config.plugins.options == {
        "p": {"a": 1, "b": 20, "c": 30, "deep": {"x": 1, "y": [1, 2]}},
        "q": {},
    }
    origins = {key: value for key, value in resolved.origins.items() if value != "default"}
    assert origins == {
        "plugins.options.p.a": f"file {file}",
        "plugins.options.p.deep.x": f"file {file}",
        "plugins.options.p.b": "environment FRAMEWORK_PLUGINS__OPTIONS__P__B",
        "plugins.options.p.deep.y": "command line",
        "plugins.options.p.c": "launch",
        "plugins.options.q": "launch",
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("1.5", 1.5),
        ("true", True),
        ("null", None),
        ("word", "word"),
        ('"12"', "12"),
        ("'12'", "12"),
        ("[1, 2]", [1, 2]),
        ("2024-01-01", "2024-01-01"),
        ("1\nother = 2", "1\nother = 2"),
        ("", ""),
    ],
)
def test_text_is_json_or_toml_or_itself(text: str, value: object) -> None:
    assert _options(f"--plugins.options.p.key={text}") == {"p": {"key": value}}


def test_a_whole_table_as_text_names_plugins_with_a_dash() -> None:
    assert _options(FRAMEWORK_PLUGINS__OPTIONS='{"a-b": {"x": 1}}') == {"a-b": {"x": 1}}
    assert _options("--plugins.options.a-b={x = 1}") == {"a-b": {"x": 1}}


def test_a_later_value_replaces_a_table_and_its_origins() -> None:
    resolved = load_config(
        {"plugins": {"options": {"p": {"key": 5}}}},
        argv=["--plugins.options.p.key.deep=1", "--plugins.options.p.other=2"],
        environ={},
    )
    assert resolved.config.plugins.options == {"p": {"key": 5, "other": 2}}
    assert resolved.origins["plugins.options.p.key"] == "launch"
    assert "plugins.options.p.key.deep" not in resolved.origins


def test_what_was_given_is_not_changed() -> None:
    options: dict[str, Any] = {"p": {"a": 1}}
    given = {"plugins": {"options": options}}
    first = load_config(given, argv=["--plugins.options.p.b=2"], environ={})
    assert options == {"p": {"a": 1}}
    first.config.plugins.options["p"]["a"] = 9
    assert options == {"p": {"a": 1}}


@pytest.mark.parametrize("flag", ["--plugins.options=3", "--plugins.options.p=word"])
def test_options_are_tables(flag: str) -> None:
    with pytest.raises(ConfigError, match=r"allowed is a table, plugins\.options\.<name>\.<key>"):
        _options(flag)
