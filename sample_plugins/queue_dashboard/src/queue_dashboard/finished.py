"""How many requests ended, and why: read from the metrics of the server.

A count of one's own would be of one front-end process, and the hook `on_request_finished` runs in
the process of the engine core. The metrics are of the whole server.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from hookspecs.contracts.stats import Exposition

__all__ = ["finished_by_reason"]

# A line of Prometheus' text format. Quotes in a label's value are escaped, so `reason="` is a
# label wherever it stands.
_LINE = re.compile(r'^framework_requests_total\{[^\n]*\bfinish_reason="(\w+)"[^\n]*\} (\S+)$', re.M)
_TEXT_FORMATS = ("text/plain", "application/openmetrics-text")


def finished_by_reason(expositions: Iterable[Exposition]) -> dict[str, int] | None:
    """Outputs of requests that ended since the start, by finish reason, all engines together.
    None when no stat logger exposes them (`prometheus` does)."""
    counts: Counter[str] = Counter()
    for exposition in expositions:
        if exposition.content_type.startswith(_TEXT_FORMATS):
            for reason, value in _LINE.findall(exposition.body.decode()):
                counts[reason] += int(float(value))
            if counts:
                return dict(counts)
    return None
