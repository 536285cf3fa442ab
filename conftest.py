"""Settings of all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How long an example takes depends on the machine; no test asserts time.
settings.register_profile("framework", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("framework")
