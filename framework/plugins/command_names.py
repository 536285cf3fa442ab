"""Names of engine commands: those of plugins and of the engine are apart, in later versions too."""

from __future__ import annotations

from typing import Final

__all__ = ["RESERVED", "wrong_command_name"]

RESERVED: Final = frozenset({"drain", "pause", "resume", "sleep"})
"""The engine's own commands without an underscore; there will be no more of them."""


def wrong_command_name(name: str) -> str | None:
    """Why the name can not be that of a plugin's engine command, if so."""
    if "_" in name:
        return (
            f"the name {name!r} of an engine command has an underscore, as only the engine's own "
            "have; write '-'"
        )
    if name in RESERVED:
        return (
            f"the name {name!r} is that of a command which the engine has itself and which can not "
            "be replaced; choose another"
        )
    return None
