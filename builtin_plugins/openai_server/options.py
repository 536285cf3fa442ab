"""Options of the OpenAI-compatible server."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["OpenAIOptions"]


class OpenAIOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`plugins.options.openai`. Address, keys and queue are in the section `serving`."""

    model_names: Annotated[
        tuple[str, ...],
        Meta(description="Names under which the model is served; empty: model.name."),
    ] = ()
    admin_routes: Annotated[
        bool, Meta(description="Serve the routes under /admin: pause, sleep, weights, drain.")
    ] = False
    cors_origins: Annotated[
        tuple[str, ...], Meta(description="Origins that browsers may call from; `*`: all.")
    ] = ()
    keep_alive_s: Annotated[
        int, Meta(ge=1, description="Seconds that an idle connection stays open.")
    ] = 5
    body_timeout_s: Annotated[
        float,
        Meta(gt=0, description="Seconds in which a request's headers, and its body, must arrive."),
    ] = 60.0
    request_timeout_s: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="Seconds a request may take; then it is aborted. None: no limit."),
    ] = None
    max_prompts: Annotated[int, Meta(ge=1, description="Prompts of one request.")] = 256
