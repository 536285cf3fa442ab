"""JSON schema of the configuration."""

from __future__ import annotations

from typing import Any

import msgspec

from hookspecs.config import EngineConfig

__all__ = ["config_schema"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def config_schema() -> dict[str, Any]:
    """Sections, keys, types, bounds, defaults and descriptions of `EngineConfig`."""
    # Defaults are tuples in the structs; a schema has arrays.
    text = msgspec.json.encode({"$schema": DIALECT, **msgspec.json.schema(EngineConfig)})
    schema: dict[str, Any] = msgspec.json.decode(text)
    return schema
