"""Suite of attention backends, against attention by its definition in float64."""

from __future__ import annotations

from framework.conformance.suites.attention_backend.arguments import Arguments
from framework.conformance.suites.attention_backend.cache import Cache
from framework.conformance.suites.attention_backend.capabilities import Capabilities
from framework.conformance.suites.attention_backend.definition import Definition
from framework.conformance.suites.attention_backend.in_engine import InEngine
from framework.conformance.suites.attention_backend.independence import Independence

__all__ = ["AttentionBackendConformance"]


# Tests run in the reverse order of the bases.
class AttentionBackendConformance(
    InEngine, Arguments, Independence, Cache, Capabilities, Definition
):
    """Attention backends write keys and values where they belong, and read no others."""
