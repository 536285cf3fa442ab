"""Options of the tracer."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["TraceJsonLinesOptions"]


class TraceJsonLinesOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`plugins.options.trace-json-lines`."""

    path: Annotated[
        str, Meta(min_length=1, description="File to append to; its directory must exist.")
    ]
    flush: Annotated[
        bool,
        Meta(
            description="Write every line by itself, at once; else by 64 KiB and at the end, "
            "which is cheaper and loses what is left if the process is killed."
        ),
    ] = True
    max_bytes: Annotated[
        int,
        Meta(
            ge=4096,
            description="Size beyond which the file becomes PATH.1, in place of an older one.",
        ),
    ] = 64 * 1024 * 1024
