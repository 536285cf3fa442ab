"""Suite of HTTP routes: an ASGI application with a pretended engine, and once in a server."""

from __future__ import annotations

from framework.conformance.suites.http_routes.answers import Answers
from framework.conformance.suites.http_routes.ends import Ends
from framework.conformance.suites.http_routes.independence import Independence

__all__ = ["HttpRoutesConformance"]


# Tests run in the reverse order of the bases.
class HttpRoutesConformance(Ends, Independence, Answers):
    """An application answers every request once, blocks nothing, and mixes nothing up.

    The example of a provider has `requests`: a list of texts such as `GET /status?limit=3`, with
    paths below the mount, that it answers with success; with every parameter that it reads, for
    values that no client should send are tried in their place. `GET /` is asked in any case.
    """
