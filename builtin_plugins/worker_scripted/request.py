"""Options of a request: `sampling_params.extensions["scripted"]`, its script."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["ScriptedRequest"]


class ScriptedRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request outputs; without `tokens` and `logits`, what the default rule says.
    Outputs are counted from 0."""

    tokens: Annotated[
        list[int] | None, Meta(description="The output tokens; after them the end token.")
    ] = None
    logits: Annotated[
        list[list[float]] | None,
        Meta(
            description="Row i is sampled from for output i; the last row repeats. Excludes "
            "`tokens`."
        ),
    ] = None
    eos_after: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="The end token comes after so many tokens."),
    ] = None
    fail_at: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="This output fails, and so its request."),
    ] = None
    raise_at: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="The worker raises RuntimeError instead of this output."),
    ] = None

    def __post_init__(self) -> None:
        if self.tokens is not None and self.logits is not None:
            raise ValueError("tokens and logits exclude each other")
        if self.logits is not None and not self.logits:
            raise ValueError("logits has no row; needed is at least one row")
