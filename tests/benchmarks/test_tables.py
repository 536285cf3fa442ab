"""What tables print and write."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

import msgspec
import pytest

from benchmarks.measure import ratios, show, spread
from benchmarks.tables import Table, add_arguments


def arguments(*given: str) -> Namespace:
    parser = ArgumentParser()
    add_arguments(parser, repeats=3)
    return parser.parse_args(given)


def test_a_spread_is_median_and_extremes() -> None:
    assert show(spread([3.0, 1.0, 10.0])) == "3.0 [1.0..10.0]"
    assert show(spread([0.126]), 2) == "0.13 [0.13..0.13]"


def test_ratios_are_of_neighbours() -> None:
    """The median of quotients, not the quotient of medians."""
    assert ratios([1.0, 8.0, 3.0], [1.0, 2.0, 1.0]).median == 3.0


def test_ratios_need_as_many_of_both() -> None:
    with pytest.raises(ValueError):
        ratios([1.0], [1.0, 2.0])


def test_a_table_says_where_it_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("any", ("what", "value"), arguments(), peers={"other": "1.2"})
    table.row(("a", "1"), {})
    first, empty, head, rule, row = capsys.readouterr().out.splitlines()
    assert "cores of" in first and "python" in first and "other 1.2" in first
    assert first.endswith("median [min..max] of 3")
    assert (empty, head, rule, row) == ("", "| what | value |", "|---|---|", "| a | 1 |")


def test_rows_are_appended_as_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    for value in (1, 2):
        table = Table("any", ("what",), arguments("--json", str(path)), peers={"other": "1.2"})
        table.row(("a",), {"value": value})
    rows = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    assert [row["value"] for row in rows] == [1, 2]
    assert rows[0]["table"] == "any"
    assert rows[0]["versions"]["other"] == "1.2"
    assert "cores of" in rows[0]["machine"]


def test_a_row_has_a_cell_for_each_column() -> None:
    table = Table("any", ("what", "value"), arguments())
    with pytest.raises(ValueError, match="1 cells for the 2 columns"):
        table.row(("a",), {})
