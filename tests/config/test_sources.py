"""Where values come from, who wins, and what the origin says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framework.config import load_config
from framework.config.keys import KEYS, OPTIONS
from framework.config.sources import environment_name
from hookspecs.config import CacheConfig, EngineConfig
from hookspecs.errors import ConfigError

SOURCES = ("file", "environment", "command line", "launch")


def _load(values: dict[str, int], directory: Path) -> tuple[int, str]:
    """Resolve cache.block_size with the given value in each named source."""
    file = directory / "engine.toml"
    file.write_text(
        f"[cache]\nblock_size = {values['file']}\n" if "file" in values else "", encoding="utf-8"
    )
    resolved = load_config(
        {"cache": {"block_size": values["launch"]}} if "launch" in values else None,
        file=file,
        environ={"FRAMEWORK_CACHE__BLOCK_SIZE": str(values["environment"])}
        if "environment" in values
        else {},
        argv=[f"--cache.block_size={values['command line']}"] if "command line" in values else [],
    )
    return resolved.config.cache.block_size, resolved.origins["cache.block_size"]


@settings(deadline=None)
@given(values=st.dictionaries(st.sampled_from(SOURCES), st.integers(1, 1024)))
def test_the_last_source_that_gives_a_key_wins(
    values: dict[str, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.getbasetemp()
    value, origin = _load(values, directory)
    given_by = [source for source in SOURCES if source in values]
    if not given_by:
        assert (value, origin) == (16, "default")
        return
    details = {
        "file": f"file {directory / 'engine.toml'}",
        "environment": "environment FRAMEWORK_CACHE__BLOCK_SIZE",
    }
    assert value == values[given_by[-1]]
    assert origin == details.get(given_by[-1], given_by[-1])


def test_defaults_alone_are_the_default_struct() -> None:
    resolved = load_config(environ={})
    assert resolved.config == EngineConfig()
    assert set(resolved.origins) == set(KEYS)
    assert set(resolved.origins.values()) == {"default"}


def test_a_path_as_source_and_the_config_flag_name_a_file(tmp_path: Path) -> None:
    file = tmp_path / "engine.toml"
    file.write_text('[model]\nname = "m"\n[scheduler]\npolicies = ["fcfs", "x"]\n')
    for resolved in (
        load_config(file, environ={}),
        load_config(str(file), environ={}),
        load_config(argv=["--config", str(file)], environ={}),
        load_config(argv=[f"--config={file}"], environ={}),
    ):
        assert resolved.config.model.name == "m"
        assert resolved.config.scheduler.policies == ("fcfs", "x")
        assert resolved.origins["model.name"] == f"file {file}"


def test_two_files_are_refused(tmp_path: Path) -> None:
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text("")
    two.write_text("")
    with pytest.raises(ConfigError, match=r"Several configuration files .*one\.toml.*two\.toml"):
        load_config(one, argv=["--config", str(two)], environ={})
    with pytest.raises(ConfigError, match="given 2 times"):
        load_config(argv=["--config", str(one), "--config", str(two)], environ={})


def test_a_struct_is_complete() -> None:
    config = EngineConfig(cache=CacheConfig(block_size=32))
    resolved = load_config(config, environ={"FRAMEWORK_CACHE__BLOCK_SIZE": "64"})
    assert resolved.config == config
    assert resolved.origins["cache.block_size"] == "launch"
    with pytest.raises(ConfigError, match="EngineConfig is complete"):
        load_config(config, argv=["--cache.block_size=8"], environ={})


def test_a_struct_is_checked_too() -> None:
    with pytest.raises(ConfigError, match=r"launch: cache\.block_size = 0; .* from 1 to 1024"):
        load_config(EngineConfig(cache=CacheConfig(block_size=0)), environ={})


def test_a_value_may_follow_its_flag_and_the_last_flag_counts() -> None:
    argv = ["--cache.block_size", "8", "--stats.interval_s=2", "--cache.block_size", "32"]
    config = load_config(argv=argv, environ={}).config
    assert config.cache.block_size == 32
    assert config.stats.interval_s == 2.0


def test_debug_variable_sets_engine_debug() -> None:
    resolved = load_config(environ={"FRAMEWORK_DEBUG": "1"})
    assert resolved.config.engine.debug
    assert resolved.origins["engine.debug"] == "environment FRAMEWORK_DEBUG"
    both = load_config(environ={"FRAMEWORK_DEBUG": "1", "FRAMEWORK_ENGINE__DEBUG": "false"})
    assert not both.config.engine.debug


def test_reserved_and_foreign_variables_are_no_settings() -> None:
    environ = {"FRAMEWORK_PLUGINS": "none", "FRAMEWORK_CACHE_DIR": "/c", "FRAMEWORK_OTHER": "1"}
    assert load_config(environ=environ).config == EngineConfig()


def test_none_takes_a_value_back() -> None:
    given = ["--cache.num_blocks=8", "--cache.num_blocks=none", "--cache.kv_bytes=4096"]
    config = load_config(argv=given, environ={}).config
    assert (config.cache.num_blocks, config.cache.kv_bytes) == (None, 4096)


def test_no_tokenizer_is_a_word_of_its_own() -> None:
    assert load_config(argv=["--model.tokenizer=none"], environ={}).config.model.tokenizer == "none"


def _example(annotation: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type within its bounds."""
    kind = msgspec.inspect.type_info(annotation)
    if isinstance(kind, msgspec.inspect.Metadata):
        kind = kind.type
    return _values(kind)


def _values(kind: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    match kind:
        case msgspec.inspect.UnionType(types=types):
            return st.one_of([_values(member) for member in types])
        case msgspec.inspect.Metadata(type=inner):
            return _values(inner)
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.EnumType(cls=cls):
            return st.sampled_from(list(cls))
        case msgspec.inspect.IntType(ge=low, le=high):
            return st.integers(low, 2**62 if high is None else high)
        case msgspec.inspect.FloatType():
            return st.floats(min_value=1e-6, max_value=1e9)
        case msgspec.inspect.VarTupleType(min_length=least):
            words = st.from_regex(r"[a-z][a-z0-9:_-]{0,8}", fullmatch=True)
            return st.lists(words, min_size=least or 0, max_size=3).map(tuple)
        case _:
            return st.text(st.characters(exclude_categories=["C"]), max_size=12).filter(
                lambda text: text.casefold() != "none"
            )


def _as_text(value: Any) -> list[str]:
    """The ways to write a value on the command line."""
    match value:
        case None:
            return ["none", "None"]
        case True:
            return ["true", "1", "True"]
        case False:
            return ["false", "0"]
        case tuple():
            return [",".join(value), json.dumps(value)]
        case _:
            return [str(value)]


@pytest.mark.parametrize("name", [name for name in KEYS if name != OPTIONS])
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_every_key_goes_round_as_text(name: str, data: st.DataObject) -> None:
    value = data.draw(_example(KEYS[name].annotation))
    if name == "model.tokenizer" and value is None:
        return
    section, key = name.split(".")
    for text in _as_text(value):
        for resolved in (
            load_config(argv=[f"--{name}={text}"], environ={}),
            load_config(argv=[f"--{name}", text], environ={}),
            load_config(environ={environment_name(name): text}),
        ):
            assert getattr(getattr(resolved.config, section), key) == value
            assert resolved.origins[name] != "default"
