"""Suite of every plugin, whatever it provides: to be written."""

from framework.conformance.base import Conformance


class HooksConformance(Conformance):
    kind = "hooks"
