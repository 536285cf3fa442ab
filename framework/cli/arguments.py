"""Settings among the arguments: they are taken out before a command parses the rest."""

from __future__ import annotations

from collections.abc import Sequence

from framework.config import is_file_flag

__all__ = ["split_settings"]


def split_settings(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """(settings, the rest). Settings are `--config FILE` and `--section.key VALUE`.

    A setting is known by the dot in its flag. After a bare `--` there are none.
    """
    settings: list[str] = []
    rest: list[str] = []
    arguments = iter(argv)
    for argument in arguments:
        if argument == "--":
            return settings, [*rest, argument, *arguments]
        flag, equals, _ = argument.partition("=")
        if is_file_flag(argument) or (flag.startswith("--") and "." in flag):
            settings.append(argument)
            if not equals:
                settings.extend(value for value in [next(arguments, None)] if value is not None)
        else:
            rest.append(argument)
    return settings, rest
