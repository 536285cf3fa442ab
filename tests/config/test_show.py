"""The schema and the rendered tree."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec

from framework.config import config_lines, config_schema, config_tree, load_config
from framework.config.keys import KEYS
from hookspecs.config import EngineConfig


def _properties(schema: dict[str, Any], definition: dict[str, Any]) -> dict[str, Any]:
    reference = definition.get("$ref") or definition["allOf"][0]["$ref"]
    properties: dict[str, Any] = schema["$defs"][reference.rsplit("/", 1)[1]]["properties"]
    return properties


def test_the_schema_lists_every_key_with_bounds_and_descriptions() -> None:
    schema = config_schema()
    assert msgspec.json.decode(msgspec.json.encode(schema)) == schema
    sections = _properties(schema, schema)
    keys = {
        f"{section}.{key}": value
        for section, definition in sections.items()
        for key, value in _properties(schema, definition).items()
    }
    assert set(keys) == set(KEYS)
    assert keys["cache.block_size"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 1024,
        "default": 16,
        "description": "Tokens a block.",
    }


def test_the_tree_is_plain_and_redacted() -> None:
    given = {"serving": {"api_keys": ["hush", "hush2"]}, "plugins": {"options": {"p": {"a": 1}}}}
    resolved = load_config(given, environ={})
    tree = config_tree(resolved)
    text = msgspec.json.encode(tree).decode()
    assert "hush" not in text + "\n".join(config_lines(resolved))
    assert tree["config"]["serving"]["api_keys"] == ["<redacted>", "<redacted>"]
    assert resolved.config.serving.api_keys == ("hush", "hush2")
    assert tree["origins"]["plugins.options.p.a"] == "launch"
    assert msgspec.convert(tree["config"], EngineConfig).plugins == resolved.config.plugins


def test_lines_say_value_and_origin() -> None:
    resolved = load_config(
        {"plugins": {"options": {"p": {"a.b": {"c": 1}}}}},
        argv=["--model.name=m"],
        environ={"FRAMEWORK_CACHE__BLOCK_SIZE": "32"},
    )
    lines = [" ".join(line.split()) for line in config_lines(resolved)]
    assert 'model.name = "m" (command line)' in lines
    assert "cache.block_size = 32 (environment FRAMEWORK_CACHE__BLOCK_SIZE)" in lines
    assert "cache.num_blocks = none (default)" in lines
    assert "plugins.options.p.a.b.c = 1 (launch)" in lines
    assert len(lines) == len(resolved.origins)


def test_import_is_light() -> None:
    code = (
        "import sys, framework.config; "
        "print([m for m in ('torch', 'transformers', 'numpy', 'rich') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
