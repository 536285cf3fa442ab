"""The text format of Prometheus, version 0.0.4, and what numbers in it must agree about:
https://prometheus.io/docs/instrumenting/exposition_formats/."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["Page", "is_prometheus_text", "read_page"]

_NAME: Final = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL: Final = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
_SAMPLE: Final = re.compile(
    rf"(?P<name>{_NAME})(?:\{{(?P<labels>(?:{_LABEL}(?:,{_LABEL})*,?)?)\}})?"
    r"[ \t]+(?P<value>\S+)(?:[ \t]+-?\d+)?"
)
_COMMENT: Final = re.compile(rf"# (?P<what>HELP|TYPE) (?P<name>{_NAME})(?: (?P<text>.*))?")
_TYPES: Final = ("counter", "gauge", "histogram", "summary", "untyped")
_SUFFIXES: Final = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("", "_sum", "_count")}

Series = tuple[str, tuple[str, ...]]
"""Name of a sample and its labels, each as `name="value"`, sorted."""


class Page(NamedTuple):
    """What a page says."""

    types: Mapping[str, str]
    """Name of a family to its type."""
    samples: Mapping[Series, float]

    def counters(self) -> dict[Series, float]:
        """What may only grow: counters, and the counts of histograms and summaries."""
        grow = {name for name, kind in self.types.items() if kind == "counter"}
        for name, kind in self.types.items():
            grow |= {name + end for end in _SUFFIXES.get(kind, ()) if end in ("_bucket", "_count")}
        return {series: value for series, value in self.samples.items() if series[0] in grow}


def is_prometheus_text(content_type: str) -> bool:
    """Whether a content type says that a body is in this format."""
    kind, *parameters = (part.strip().lower() for part in content_type.split(";"))
    return kind == "text/plain" and "version=0.0.4" in parameters


def read_page(body: bytes) -> Page:
    """AssertionError with the line that is not of the format, or whose number contradicts
    another one."""
    types: dict[str, str] = {}
    samples: dict[Series, float] = {}
    text = body.decode("utf-8")
    assert not text or text.endswith("\n"), "the last line does not end with a line feed"
    for line in text.split("\n"):
        if not line or (line.startswith("#") and not line.startswith(("# HELP ", "# TYPE "))):
            continue
        if line.startswith("#"):
            _read_comment(line, types)
        else:
            series, value = _read_sample(line)
            assert series not in samples, f"the series of {line!r} is there twice"
            samples[series] = value
    page = Page(types, samples)
    _check_counts(page)
    return page


def _read_comment(line: str, types: dict[str, str]) -> None:
    found = _COMMENT.fullmatch(line)
    assert found is not None, f"{line!r} is no HELP and no TYPE line"
    if found["what"] == "TYPE":
        assert found["text"] in _TYPES, f"{line!r}: a type is one of {', '.join(_TYPES)}"
        assert found["name"] not in types, f"{line!r}: the family has a type already"
        types[found["name"]] = found["text"]


def _read_sample(line: str) -> tuple[Series, float]:
    found = _SAMPLE.fullmatch(line)
    assert found is not None, f"{line!r} is no sample"
    try:
        value = float(found["value"])
    except ValueError as error:
        raise AssertionError(f"{line!r}: {found['value']!r} is no number") from error
    return (found["name"], tuple(sorted(re.findall(_LABEL, found["labels"] or "")))), value


def _check_counts(page: Page) -> None:
    for (name, labels), value in page.counters().items():
        assert not (math.isnan(value) or value < 0), f"{name}{{{','.join(labels)}}} is {value}"
    for name, kind in page.types.items():
        if kind == "histogram":
            _check_histogram(page, name)


def _check_histogram(page: Page, name: str) -> None:
    buckets: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for (sample, labels), value in page.samples.items():
        if sample == f"{name}_bucket":
            bounds = [label for label in labels if label.startswith('le="')]
            assert len(bounds) == 1, f"a bucket of {name} has no label le"
            rest = tuple(label for label in labels if label not in bounds)
            buckets.setdefault(rest, []).append((float(bounds[0][4:-1]), value))
    for labels, found in buckets.items():
        what = f"{name}{{{','.join(labels)}}}"
        found.sort()
        counts = [count for _, count in found]
        assert counts == sorted(counts), f"the buckets of {what} do not add up: {found}"
        assert found[-1][0] == math.inf, f"{what} has no bucket for +Inf"
        count = page.samples.get((f"{name}_count", labels))
        assert count == counts[-1], f"{what} has the count {count}, its buckets say {counts[-1]}"
