"""`load_config`: five sources to one checked `EngineConfig` that knows its origins."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from framework.config.file_flag import FILE_FLAG, is_file_flag
from framework.config.keys import KEYS, OPTIONS, SECRETS, SECTIONS, Key, allowed, members
from framework.config.options import OptionTree
from framework.config.sources import (
    Reading,
    Setting,
    read_arguments,
    read_environment,
    read_file,
    read_given,
)
from framework.config.suggest import suggestion
from hookspecs.config import EngineConfig
from hookspecs.errors import ConfigError

__all__ = ["ResolvedConfig", "load_config", "require_model"]

EXCLUSIVE: Final = (("cache.num_blocks", "cache.kv_bytes"),)
"""Keys of which at most one may be given."""

Source = EngineConfig | Mapping[str, Any] | str | os.PathLike[str] | None


class ResolvedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an engine, and which source each came from."""

    config: EngineConfig
    origins: dict[str, str]
    """Dotted key to `default`, `file PATH`, `environment NAME`, `command line` or `launch`."""


def load_config(
    source: Source = None,
    *,
    argv: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    file: str | os.PathLike[str] | None = None,
) -> ResolvedConfig:
    """Read all sources; of each key the last one that gives it counts.

    In order: defaults, TOML file, environment, command line, what `launch` was given.
    `source` is what `launch` was given: a mapping of sections, the path of the file, or an
    `EngineConfig`, which is complete, so that no other source is read. `argv` holds nothing but
    `--section.key=value`, `--section.key value` and `--config FILE`. `environ` is the process's
    own when None. Options are tables that merge; all other values replace.

    Raises ConfigError, which names every wrong setting with its source and what is allowed.
    """
    flags, flag_file = _split_file(argv)
    given: EngineConfig | Mapping[str, Any] | None = None
    source_file: str | os.PathLike[str] | None = None
    match source:
        case None:
            pass
        case EngineConfig() | Mapping():
            given = source
        case str() | os.PathLike():
            source_file = source
        case _:
            raise ConfigError(
                f"A configuration is a mapping of sections, an EngineConfig or the path of a "
                f"TOML file, not {type(source).__name__} {source!r}."
            )
    path = _one_file(source_file, flag_file, file)
    if isinstance(given, EngineConfig):
        if path is not None or flags:
            raise ConfigError(
                "An EngineConfig is complete: it leaves nothing to a file or the command line. "
                "Give a mapping of the sections that matter, or no other source."
            )
        return _resolve([read_given(given)])

    readings: list[Reading] = []
    if path is not None:
        readings.append(read_file(path))
    readings.append(read_environment(os.environ if environ is None else environ))
    readings.append(read_arguments(flags))
    if given is not None:
        readings.append(read_given(given))
    return _resolve(readings)


def require_model(config: EngineConfig) -> None:
    """Raise ConfigError unless the configuration names a model."""
    if not config.model.name:
        raise ConfigError(
            "model.name is not set. Give a local directory, a hub name, package:NAME or the path "
            "of a .gguf file: model.name in the configuration, FRAMEWORK_MODEL__NAME in the "
            "environment, or --model.name on the command line."
        )


def _split_file(argv: Sequence[str]) -> tuple[list[str], str | None]:
    """Arguments without `--config FILE`, and the file."""
    flags: list[str] = []
    files: list[str] = []
    rest = iter(argv)
    for argument in rest:
        if is_file_flag(argument):
            _, equals, text = argument.partition("=")
            following = text if equals else next(rest, None)
            if following is None:
                raise ConfigError(f"command line {FILE_FLAG}: the path of a TOML file is missing.")
            files.append(following)
        else:
            flags.append(argument)
            if argument.startswith("--") and "=" not in argument:
                # The next argument is this flag's value, whatever it looks like.
                flags.extend(value for value in [next(rest, None)] if value is not None)
    if len(files) > 1:
        raise ConfigError(
            f"command line {FILE_FLAG}: given {len(files)} times, allowed is one file."
        )
    return flags, files[0] if files else None


def _one_file(*paths: str | os.PathLike[str] | None) -> Path | None:
    found = {_expanded(path) for path in paths if path is not None}
    if len(found) > 1:
        named = ", ".join(sorted(map(str, found)))
        raise ConfigError(f"Several configuration files are given: {named}. Give one.")
    return found.pop() if found else None


def _expanded(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as error:  # ~NAME of a user that is not there
        raise ConfigError(
            f"The configuration file {os.fspath(path)!r} is not usable: {error}"
        ) from error


def _resolve(readings: Iterable[Reading]) -> ResolvedConfig:
    tree: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    options = OptionTree()
    winners: dict[str, Setting] = {}
    problems: list[str] = []
    for reading in readings:
        problems.extend(reading.problems)
        for setting in reading.settings:
            problem: str | None
            if not _is_unicode(setting.value):
                problem = f"{setting.place}: {setting.name} has text that is not valid Unicode."
            elif setting.name in KEYS and setting.name != OPTIONS:
                problem = _put(setting, tree)
                winners[setting.name] = setting
            else:
                problem = options.put(setting)
            if problem:
                problems.append(problem)
    problems.extend(_conflicts(tree, winners))
    if problems:
        raise ConfigError(_message(problems))

    tree["plugins"]["options"] = options.values
    origins = {key: "default" for key in KEYS if key != OPTIONS}
    origins |= {name: setting.origin for name, setting in winners.items()}
    origins |= options.origins or {OPTIONS: "default"}
    return ResolvedConfig(config=msgspec.convert(tree, EngineConfig), origins=origins)


def _is_unicode(value: Any) -> bool:
    """False for text with lone surrogates: bytes of the environment or of an argument that are
    no UTF-8. It could be neither shown nor sent to another process."""
    try:
        msgspec.msgpack.encode(value)
    except UnicodeEncodeError:
        return False
    except Exception:  # not data: said where its type is checked
        return True
    return True


def _put(setting: Setting, tree: dict[str, dict[str, Any]]) -> str | None:
    """Put the value into the tree; or what is wrong with it."""
    key = KEYS[setting.name]
    try:
        value = msgspec.convert(setting.value, key.annotation)
    except msgspec.ValidationError:
        return f"{setting.place}: {key.name} {_complaint(key, setting.value)}"
    section, name = setting.path
    tree[section][name] = value
    return None


def _complaint(key: Key, value: Any) -> str:
    shown = "has a wrong value (not shown)" if key.name in SECRETS else f"= {value!r}"
    words = members(key.kind)
    hint = suggestion(value, words) if isinstance(value, str) else ""
    return f"{shown}; allowed is {allowed(key.kind)}.{hint}"


def _conflicts(tree: dict[str, dict[str, Any]], winners: Mapping[str, Setting]) -> Iterable[str]:
    for names in EXCLUSIVE:
        given = [
            (name, tree[section][key])
            for name in names
            for section, key in [name.split(".")]
            if tree[section].get(key) is not None
        ]
        if len(given) > 1:
            said = " and ".join(
                f"{name} = {value} ({winners[name].place})" for name, value in given
            )
            yield f"{said} exclude each other. Give one; `none` takes a value back."


def _message(problems: list[str]) -> str:
    if len(problems) == 1:
        return problems[0]
    return f"{len(problems)} settings are wrong:" + "".join(f"\n  - {line}" for line in problems)
