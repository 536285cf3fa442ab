"""The resolved configuration for people and programs, with the origin of each value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from framework.config.keys import SECRETS
from framework.config.load import ResolvedConfig

__all__ = ["config_lines", "config_tree"]

REDACTED: Final = "<redacted>"


def config_tree(resolved: ResolvedConfig) -> dict[str, Any]:
    """`{"config": tree, "origins": {dotted key: origin}}` of plain values; secrets redacted."""
    tree: dict[str, Any] = msgspec.to_builtins(resolved.config, enc_hook=repr)
    for name in SECRETS:
        section, key = name.split(".")
        tree[section][key] = [REDACTED] * len(tree[section][key])
    return {"config": tree, "origins": dict(resolved.origins)}


def config_lines(resolved: ResolvedConfig) -> list[str]:
    """One aligned line a key: `cache.block_size = 16  (default)`."""
    pairs = list(_values(config_tree(resolved)["config"], "", resolved.origins))
    width = max(len(name) + len(text) for name, text in pairs)
    return [
        f"{name} = {text}{' ' * (width - len(name) - len(text))}  ({resolved.origins[name]})"
        for name, text in pairs
    ]


def _values(tree: dict[str, Any], above: str, origins: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Dotted name and text of each value that has an origin of its own."""
    for key, value in tree.items():
        name = f"{above}{key}"
        if name in origins:
            yield name, _text(value)
        else:
            yield from _values(value, f"{name}.", origins)


def _text(value: Any) -> str:
    return "none" if value is None else msgspec.json.encode(value).decode()
