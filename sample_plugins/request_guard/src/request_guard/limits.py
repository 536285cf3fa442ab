"""What a tenant may ask for."""

from __future__ import annotations

import msgspec
from hookspecs.events import RequestReceived, RequestRejected

from request_guard.options import RequestGuardOptions

__all__ = ["limited"]


def limited(
    event: RequestReceived, options: RequestGuardOptions
) -> RequestReceived | RequestRejected | None:
    """The request within the limits of its tenant, its refusal, or None if it is as it may be."""
    tenant = event.tenant
    if tenant in options.refuse:
        return RequestRejected(reason=f"tenant {tenant!r} may send no requests to this server")
    if event.pooling is not None:
        return None
    params = event.params
    if options.redact and params.logprobs is not None:
        return RequestRejected(
            reason="logprobs are not available here, since they show tokens of texts that are "
            "redacted; leave them out"
        )
    most = options.max_tokens.get(tenant)
    if most is None or (params.max_tokens is not None and params.max_tokens <= most):
        return None
    if params.min_tokens > most:
        return RequestRejected(
            reason=f"min_tokens is {params.min_tokens}; an output of tenant {tenant!r} has at most "
            f"{most} tokens"
        )
    # New objects: the caller may use its parameters for the next request, too.
    return msgspec.structs.replace(event, params=msgspec.structs.replace(params, max_tokens=most))
