"""Suite of samplers, against what SamplingParams says, in float64."""

from __future__ import annotations

from framework.conformance.suites.sampler.adjustments import Adjustments
from framework.conformance.suites.sampler.draws import Draws
from framework.conformance.suites.sampler.in_engine import InEngine
from framework.conformance.suites.sampler.isolation import Isolation
from framework.conformance.suites.sampler.logprobs import Logprobs
from framework.conformance.suites.sampler.seeds import Seeds

__all__ = ["SamplerConformance"]


# Tests run in the reverse order of the bases.
class SamplerConformance(InEngine, Logprobs, Isolation, Seeds, Adjustments, Draws):
    """Samplers apply every parameter in its order, and each row depends on itself alone."""
