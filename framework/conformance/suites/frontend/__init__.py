"""Suite of front ends: on a real socket with a pretended engine, and once in a server."""

from __future__ import annotations

from framework.conformance.suites.frontend.life_cycle import LifeCycle
from framework.conformance.suites.frontend.routes import Routes
from framework.conformance.suites.frontend.troubles import Troubles

__all__ = ["FrontendConformance"]


# Tests run in the reverse order of the bases.
class FrontendConformance(Routes, Troubles, LifeCycle):
    """A front end serves until it is cancelled, whatever clients and engines do.

    The example of a provider has `request`: a text that gets an answer on a new connection; it is
    an HTTP request if none is given. Tests of routes, keys and bodies are for front ends that
    answer HTTP with HTTP; others pass them.
    """
