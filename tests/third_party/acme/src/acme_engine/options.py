"""The options of the providers."""

from typing import Annotated

import msgspec
from msgspec import Meta


class SchedulerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`plugins.options.acme-reserve`."""

    chunk_tokens: Annotated[
        int, Meta(ge=0, description="Most tokens of one request in a step; 0: no limit.")
    ] = 0


class EchoOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`plugins.options.acme-echo`, for the worker and the model source."""

    vocab_size: Annotated[int, Meta(ge=2, description="Token ids are below this.")] = 1000
    max_model_len: Annotated[int, Meta(ge=1, description="Context, in tokens.")] = 4096


class TotalsOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`plugins.options.acme-totals`."""

    path: Annotated[str, Meta(description="File that the totals are written to.")] = "totals.json"
