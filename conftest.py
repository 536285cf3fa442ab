"""Settings of all tests."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

if "PYTEST_XDIST_WORKER" in os.environ:
    # Processes beside each other have a processor each; a library's threads that wait for work
    # would take it from the others.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes depends on the machine; no test asserts time.
settings.register_profile("framework", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("framework")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What was logged may hold text that UTF-8 can not; reports cross processes."""
    report = yield
    report.sections = [
        (title, text.encode("utf-8", "backslashreplace").decode())
        for title, text in report.sections
    ]
    return report
