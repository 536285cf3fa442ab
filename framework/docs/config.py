"""The page of configuration keys."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect

from framework.config.keys import KEYS, Key, allowed
from framework.docs.markdown import code, join, prose, table
from framework.docs.source import class_source, fields_of
from hookspecs.config import EngineConfig

__all__ = ["config_page", "value_text"]

INTRO = """\
Every key has a default but `model.name`. In TOML a section is a table; in the environment
`cache.block_size` is `FRAMEWORK_CACHE__BLOCK_SIZE`; on the command line it is
`--cache.block_size=32`. How sources combine is in [operating](../operating.md#configuration).
`framework config show` prints the values of an installation and where each comes from."""


def config_page() -> str:
    """Every key with type and bounds, default and meaning, section by section."""
    blocks = ["# Configuration", prose(class_source(EngineConfig).doc), INTRO]
    for section in msgspec.structs.fields(EngineConfig):
        docs = {field.name: field.doc for field in fields_of(section.type)}
        defaults = msgspec.structs.asdict(section.type())
        rows = [
            (
                code(f"{section.name}.{name}"),
                _type(KEYS[f"{section.name}.{name}"]),
                code(value_text(defaults[name])),
                prose(docs[name]) or _of_enum(KEYS[f"{section.name}.{name}"].kind),
            )
            for name in defaults
        ]
        blocks += [
            f"## {section.name}",
            prose(class_source(section.type).doc),
            table(("key", "allowed", "default", "meaning"), rows),
        ]
    return join(blocks)


def value_text(value: Any) -> str:
    """A default as JSON; `none` for None."""
    return "none" if value is None else msgspec.json.encode(value).decode()


def _type(key: Key) -> str:
    return prose(allowed(key.kind))


def _of_enum(kind: inspect.Type) -> str:
    """What the class of an enumeration says, for a key without a description of its own."""
    return prose(class_source(kind.cls).doc) if isinstance(kind, inspect.EnumType) else ""
