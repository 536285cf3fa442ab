"""Checks of ASGI messages, which may come from applications of plugins."""

from __future__ import annotations

import re

from starlette.types import Message

__all__ = ["check_start"]

_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")


def check_start(message: Message) -> None:
    """ValueError unless `http.response.start` has a final status and headers of HTTP (RFC 9110,
    sections 15, 5.1 and 5.5), of which a length is a number."""
    status = message.get("status")
    if type(status) is not int or not (200 <= status <= 599):
        raise ValueError(f"the status of an answer is {status!r}; a number from 200 to 599 is due")
    for header in message["headers"]:
        name, value = header
        if not (isinstance(name, bytes) and isinstance(value, bytes)):
            raise ValueError(f"the header {header!r} of an answer is not a pair of bytes")
        if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
            raise ValueError(f"the header {header!r} of an answer has characters HTTP forbids")
        if name.lower() == b"content-length" and not (value.isdigit() and len(value) < 20):
            raise ValueError(f"the content-length of an answer is {value!r}, which is no number")
