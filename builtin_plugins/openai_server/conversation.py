"""Chat messages that the forms of the various endpoints have in common."""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["join_adjacent"]


def join_adjacent(messages: list[dict[str, str]], roles: Collection[str]) -> list[dict[str, str]]:
    """The messages (role, content), those that follow one another with the same one of `roles`
    made one, a blank line between their contents."""
    joined: list[dict[str, str]] = []
    for message in messages:
        role, content = message["role"], message["content"]
        if joined and role in roles and joined[-1]["role"] == role:
            joined[-1]["content"] += f"\n\n{content}"
        else:
            joined.append({"role": role, "content": content})
    return joined
