"""Files that are given as a snapshot of the plugin API and are none, or a damaged one."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framework.cli.main import main
from framework.plugins.diff import diff_snapshots
from framework.plugins.released import MAX_BYTES, load_snapshot, snapshot_text
from framework.plugins.snapshot import build_snapshot
from hookspecs.errors import ConfigError

PRESENT = build_snapshot()
PRESENT["deprecated"] = {
    "hooks on_cache_reset": {"since": "1.0", "removed_in": "2.0", "instead": "nothing"}
}
WRONG: list[Any] = [None, 3, "x", [], [[]], {}, {"a": []}, "DELETE"]


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Keys that lead to each value."""
    for key in value if isinstance(value, dict) else ():
        yield (*place, key)
        yield from _places(value[key], (*place, key))


PLACES = list(_places(PRESENT))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("snapshots") / "api.json"


def test_the_present_one_is_read_as_it_was_written(path: Path) -> None:
    path.write_text(snapshot_text(PRESENT))
    assert load_snapshot(path) == PRESENT


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(place=st.sampled_from(PLACES), wrong=st.sampled_from(WRONG))
def test_a_damaged_one_is_refused_or_can_be_compared(
    path: Path, place: tuple[Any, ...], wrong: Any
) -> None:
    damaged = copy.deepcopy(PRESENT)
    owner = damaged
    for key in place[:-1]:
        owner = owner[key]
    if wrong == "DELETE":
        del owner[place[-1]]
    else:
        owner[place[-1]] = wrong
    path.write_text(json.dumps(damaged))
    try:
        loaded = load_snapshot(path)
    except ConfigError as error:
        assert str(path) in str(error)
    else:
        diff_snapshots(loaded, PRESENT)
        diff_snapshots(PRESENT, loaded)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "truncated"),
        (b"[" * 100_000, "recursion"),
        (b"[]", "no api_version"),
        (b"\xff", "malformed"),
        (snapshot_text(PRESENT | {"functions": {"a": "\ud800"}}).encode(), "JSON is malformed"),
        (b" " * (MAX_BYTES + 1), "more than 16777216 bytes"),
        (snapshot_text(PRESENT | {"hooks": {"a": []}}).encode(), r"array.*\$\.hooks"),
        (snapshot_text(PRESENT | {"hooks": {}}).encode(), "There is no hook"),
        (snapshot_text(PRESENT | {"deprecated": {"api_version x": {}}}).encode(), "deprecated"),
        (
            json.dumps(PRESENT | {"more": json.loads("[" * 99 + "]" * 99)}).encode(),
            "nested more than",
        ),
    ],
)
def test_the_commands_name_the_file(
    path: Path, content: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        load_snapshot(path)
    for words in (
        ["diff", str(path), "1.0"],
        ["check", "worker-scripted", "--against", str(path)],
    ):
        assert main(["plugins", *words]) == 2
        assert f"'{path}' is no snapshot of the plugin API" in capsys.readouterr().err


def test_a_name_that_no_file_can_have(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "diff", "x" * 5000, "1.0"]) == 2
    assert "nor a file" in capsys.readouterr().err
