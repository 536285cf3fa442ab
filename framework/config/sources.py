"""The five sources of settings, each read into a list of `Setting`.

Names are checked here, values in `framework.config.load`. What is wrong is collected as text,
so that one run tells all of it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from framework.config.keys import KEYS, OPTIONS, SECTIONS
from framework.config.suggest import nearest, suggestion
from framework.config.text import parse_any, parse_text
from hookspecs.config import EngineConfig
from hookspecs.errors import ConfigError

__all__ = [
    "Reading",
    "Setting",
    "environment_name",
    "read_arguments",
    "read_environment",
    "read_file",
    "read_given",
]

PREFIX: Final = "FRAMEWORK_"
LEVEL: Final = "__"
"""Between the levels of a key in the environment; one underscore is part of a name."""
DEBUG_VARIABLE: Final = "FRAMEWORK_DEBUG"
DEBUG_KEY: Final = "engine.debug"
MAX_FILE_BYTES: Final = 16 << 20
"""So that a device or a file of weights is not read to its end."""
OPTIONS_PATH: Final = tuple(OPTIONS.split("."))


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One value from one source."""

    path: tuple[str, ...]
    """Levels of the key. Below `plugins.options` there are any number."""
    value: Any
    origin: str
    """`file PATH`, `environment NAME`, `command line` or `launch`."""
    flag: str = ""
    """The flag of the command line, for error messages."""

    @property
    def name(self) -> str:
        """The dotted key."""
        return ".".join(self.path)

    @property
    def place(self) -> str:
        """Where to correct it."""
        return f"{self.origin} {self.flag}" if self.flag else self.origin


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a source said, and what was wrong with it."""

    settings: list[Setting] = msgspec.field(default_factory=list)
    problems: list[str] = msgspec.field(default_factory=list)


def environment_name(key: str) -> str:
    """`cache.block_size` to `FRAMEWORK_CACHE__BLOCK_SIZE`."""
    return PREFIX + key.upper().replace(".", LEVEL)


def read_file(path: Path) -> Reading:
    """A TOML file. Raises ConfigError when it can not be read or is not TOML."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise ValueError(f"it has more than {MAX_FILE_BYTES} bytes")
        tree = tomllib.loads(data.decode())
    except FileNotFoundError:
        raise ConfigError(
            f"The configuration file {str(path)!r} does not exist. Give the path of a TOML file; "
            "a model is named with the setting model.name."
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"The configuration file {str(path)!r} is not usable: {error}") from error
    return _read_tree(tree, f"file {path}")


def read_given(tree: EngineConfig | Mapping[str, Any]) -> Reading:
    """What `launch` was given: a mapping of sections, or the whole as a struct."""
    if isinstance(tree, EngineConfig):
        tree = {section: msgspec.structs.asdict(getattr(tree, section)) for section in SECTIONS}
    return _read_tree(tree, "launch")


def read_environment(environ: Mapping[str, str]) -> Reading:
    """The variables `FRAMEWORK_<SECTION>__<KEY>`, and `FRAMEWORK_DEBUG` for `engine.debug`.

    Names of plugins and options are lower case here; a name with `-` is written in JSON in
    `FRAMEWORK_PLUGINS__OPTIONS`. Other variables with the prefix belong to someone else, unless
    they are a key with one underscore where two are due.
    """
    reading = Reading()
    slips = {environment_name(key).replace(LEVEL, "_"): environment_name(key) for key in KEYS}
    # Sorted puts FRAMEWORK_DEBUG before FRAMEWORK_ENGINE__DEBUG, which is more explicit and
    # wins, and the whole of the options before single ones.
    for variable in sorted(environ):
        if not variable.startswith(PREFIX):
            continue
        text, origin = environ[variable], f"environment {variable}"
        if variable == DEBUG_VARIABLE:
            if text:
                _add_text(reading, tuple(DEBUG_KEY.split(".")), text, origin)
        elif LEVEL in variable:
            path = tuple(variable.removeprefix(PREFIX).lower().split(LEVEL))
            _add_text(reading, path, text, origin)
        elif variable in slips:
            reading.problems.append(
                f"{origin}: two underscores separate the levels. Write {slips[variable]}."
            )
    return reading


def read_arguments(arguments: Sequence[str]) -> Reading:
    """Flags `--section.key=value` or `--section.key value`; of one key the last counts."""
    reading = Reading()
    rest = iter(arguments)
    for argument in rest:
        flag, equals, text = argument.partition("=")
        if not flag.startswith("--") or "." not in flag:
            reading.problems.append(
                f"command line: {argument!r} is not a setting. Write --section.key=value."
            )
            continue
        if not equals:
            following = next(rest, None)
            if following is None:
                reading.problems.append(f"command line {flag}: a value is missing.")
                continue
            text = following
        path = tuple(flag.removeprefix("--").split("."))
        _add_text(reading, path, text, "command line", flag)
    return reading


def _add_text(
    reading: Reading, path: tuple[str, ...], text: str, origin: str, flag: str = ""
) -> None:
    place = f"{origin} {flag}" if flag else origin
    problem = _name_problem(path, place)
    if problem:
        reading.problems.append(problem)
        return
    name = ".".join(path)
    value = parse_text(text, KEYS[name]) if name in KEYS else parse_any(text)
    if path[: len(OPTIONS_PATH)] == OPTIONS_PATH and isinstance(value, dict):
        for below, leaf in _leaves(value, path):
            reading.settings.append(Setting(path=below, value=leaf, origin=origin, flag=flag))
    else:
        reading.settings.append(Setting(path=path, value=value, origin=origin, flag=flag))


def _read_tree(tree: Mapping[str, Any], origin: str) -> Reading:
    reading = Reading()
    for section, table in tree.items():
        if section not in SECTIONS:
            reading.problems.append(_unknown_section(str(section), origin))
        elif not isinstance(table, Mapping):
            reading.problems.append(
                f"{origin}: {section} is {table!r}; allowed is a table of its keys."
            )
        else:
            for key, value in table.items():
                _add_value(reading, (section, str(key)), value, origin)
    return reading


def _add_value(reading: Reading, path: tuple[str, ...], value: Any, origin: str) -> None:
    problem = _name_problem(path, origin)
    if problem:
        reading.problems.append(problem)
    elif path == OPTIONS_PATH and isinstance(value, Mapping):
        for below, leaf in _leaves(value, path):
            reading.settings.append(Setting(path=below, value=leaf, origin=origin))
    else:
        reading.settings.append(Setting(path=path, value=value, origin=origin))


def _leaves(
    tree: Mapping[Any, Any], above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Values below `above`, depth first. An empty table is a value."""
    if not tree:
        yield above, {}
    for key, value in tree.items():
        path = (*above, str(key))
        if isinstance(value, Mapping):
            yield from _leaves(value, path)
        else:
            yield path, value


def _name_problem(path: tuple[str, ...], place: str) -> str | None:
    """Why no setting has this path, or None if one has."""
    section, name = path[0], ".".join(path)
    if section not in SECTIONS:
        return _unknown_section(section, place)
    if name in KEYS or path[: len(OPTIONS_PATH)] == OPTIONS_PATH:
        return None if all(path) else f"{place}: {name!r} has an empty level."
    siblings = {key.split(".")[1]: key for key in KEYS if key.startswith(f"{section}.")}
    # A key that exists elsewhere is likelier meant than one that only looks alike.
    elsewhere = [key for key in KEYS if key.split(".")[1] == path[-1]]
    near = elsewhere or [siblings[key] for key in nearest(path[-1], siblings)]
    hint = f" Did you mean {', '.join(near)}?" if near else ""
    return f"{place}: unknown key {name!r}.{hint} Keys of {section}: {', '.join(siblings)}."


def _unknown_section(section: str, place: str) -> str:
    hint = suggestion(section, SECTIONS)
    return f"{place}: unknown section {section!r}.{hint} Sections: {', '.join(SECTIONS)}."
