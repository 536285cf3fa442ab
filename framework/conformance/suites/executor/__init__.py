"""Suite of executors, driven by hand and in a real engine.

Most tests drive the executor with workers of the kit's own, which `create_worker` of its context
makes. An executor that starts processes lets its workers be made there, of the configured worker;
it is found out by a start whether `create_worker` is called, and if not, those tests are reported
as not declared, for the lack of workers in this process. All others run with the worker `scripted`.
"""

from __future__ import annotations

from framework.conformance.suites.executor.commands import Commands
from framework.conformance.suites.executor.health_and_end import HealthAndEnd
from framework.conformance.suites.executor.in_engine import InEngine
from framework.conformance.suites.executor.start import Start
from framework.conformance.suites.executor.steps import Steps

__all__ = ["ExecutorConformance"]


# Tests run in the reverse order of the bases.
class ExecutorConformance(InEngine, HealthAndEnd, Commands, Steps, Start):
    """Executors call workers in order, hand on what these say, and leave nothing behind."""
