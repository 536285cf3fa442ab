"""What is wrong is said with its place, what is allowed, and what was likely meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from framework.config import load_config, nearest, require_model
from hookspecs.config import EngineConfig
from hookspecs.errors import ConfigError


def _message(source: Any = None, **sources: Any) -> str:
    sources.setdefault("environ", {})
    with pytest.raises(ConfigError) as caught:
        load_config(source, **sources)
    return str(caught.value)


def test_every_source_is_named(tmp_path: Path) -> None:
    file = tmp_path / "engine.toml"
    file.write_text("[cache]\nblock_size = 5000\n")
    allowed = "cache.block_size = 5000; allowed is an integer from 1 to 1024."
    assert _message(file) == f"file {file}: {allowed}"
    variable = "FRAMEWORK_CACHE__BLOCK_SIZE"
    assert _message(environ={variable: "5000"}) == f"environment {variable}: {allowed}"
    flag = "--cache.block_size"
    assert _message(argv=[f"{flag}=5000"]) == f"command line {flag}: {allowed}"
    assert _message({"cache": {"block_size": 5000}}) == f"launch: {allowed}"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cach": {}}, "unknown section 'cach'. Did you mean cache?"),
        ({"cache": {"blok_size": 1}}, "Did you mean cache.block_size?"),
        ({"model": {"block_size": 1}}, "Did you mean cache.block_size?"),
        ({"model": {"dtype": "bflot16"}}, "one of auto, float32, bfloat16, float16. Did you mean"),
        ({"cache": 3}, "cache is 3; allowed is a table"),
        ({"cache": {"block_size": "16"}}, "'16'; allowed is an integer"),
        ({"cache": {"block_size": True}}, "True; allowed is an integer"),
        ({"cache": {"num_blocks": 1}}, "an integer at least 2 or none"),
        ({"stats": {"interval_s": float("nan")}}, "nan; allowed is a number greater than 0"),
        ({"stats": {"interval_s": 0}}, "allowed is a number greater than 0"),
        ({"scheduler": {"policies": "fcfs"}}, "a list, each item a string, at least 1"),
        ({"scheduler": {"policies": []}}, "a list, each item a string, at least 1"),
        ({"model": {"name": None}}, "None; allowed is a string"),
        ({"model": {"seed": -1}}, "an integer from 0 to 9223372036854775807"),
        ({"engine": {"debug": "yes"}}, "allowed is true or false"),
    ],
)
def test_wrong_settings(given: dict[str, Any], said: str) -> None:
    assert said in _message(given)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--cache.block_size"], "--cache.block_size: a value is missing"),
        (["--cache.block_size=x"], "= 'x'; allowed is an integer"),
        (["--cache.block_size=1.5"], "= '1.5'; allowed is an integer"),
        (["--engine.debug=maybe"], "allowed is true or false"),
        (["--scheduler.policies=[1"], "a list, each item a string"),
        (["--block_size=3"], "'--block_size=3' is not a setting"),
        (["word"], "'word' is not a setting"),
        (["--config"], "--config: the path of a TOML file is missing"),
        (["--cache..x=1"], "unknown key"),
        (["--plugins.options.p.=1"], "empty level"),
    ],
)
def test_wrong_arguments(argv: list[str], said: str) -> None:
    assert said in _message(argv=argv)


def test_all_errors_are_listed() -> None:
    message = _message(
        {"cache": {"block_size": 0}},
        argv=["--model.nam=x"],
        environ={"FRAMEWORK_ENGINE__DEBUG": "maybe"},
    )
    assert message.startswith("3 settings are wrong:")
    for part in ("FRAMEWORK_ENGINE__DEBUG", "Did you mean model.name?", "launch: cache.block_size"):
        assert part in message


def test_exclusive_keys_name_both_places() -> None:
    message = _message({"cache": {"kv_bytes": 4096}}, environ={"FRAMEWORK_CACHE__NUM_BLOCKS": "10"})
    assert "cache.num_blocks = 10 (environment FRAMEWORK_CACHE__NUM_BLOCKS)" in message
    assert "cache.kv_bytes = 4096 (launch)" in message


def test_one_underscore_in_the_environment_is_pointed_out() -> None:
    message = _message(environ={"FRAMEWORK_CACHE_BLOCK_SIZE": "1"})
    assert "Write FRAMEWORK_CACHE__BLOCK_SIZE." in message


def test_secrets_stay_out_of_messages() -> None:
    message = _message({"serving": {"api_keys": "hush"}})
    assert "serving.api_keys" in message
    assert "hush" not in message


def test_files_that_are_no_toml(tmp_path: Path) -> None:
    assert "does not exist" in _message(tmp_path / "missing.toml")
    assert "is not usable" in _message(tmp_path)
    broken = tmp_path / "broken.toml"
    broken.write_text("[cache\n")
    assert "broken.toml" in _message(broken)
    broken.write_bytes(b"\xff\xfe")
    assert "is not usable" in _message(broken)
    assert "not int 3" in _message(3)


def test_require_model() -> None:
    with pytest.raises(ConfigError, match=r"model\.name is not set"):
        require_model(EngineConfig())
    require_model(load_config({"model": {"name": "m"}}, environ={}).config)


def test_nearest() -> None:
    assert nearest("continous", ["continuous", "paged"]) == ["continuous"]
    assert nearest("LRU", ["lru", "fifo"]) == ["lru"]
    assert nearest("zzz", ["continuous", "paged"]) == []
    assert len(nearest("ab", [f"ab{i}" for i in range(9)])) == 3
