"""Rows, the database, and the thread between them, without an engine."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hookspecs import EngineConfig, FinishReason
from hookspecs.contracts.stats import StatLoggerContext
from hookspecs.errors import PluginConfigError
from hookspecs.types.stats import (
    FinishedRequestStats,
    IterationStats,
    PrefixCacheStats,
    SchedulerStats,
)

from sqlite_logger import writer as writer_module
from sqlite_logger.database import VERSION
from sqlite_logger.options import SqliteOptions
from sqlite_logger.plugin import plugin
from sqlite_logger.stat_logger import SqliteStatLogger


def subject(path: Path, process_index: int = 0, **options: Any) -> SqliteStatLogger:
    checked = msgspec.convert({"path": str(path), **options}, SqliteOptions)
    context = StatLoggerContext(
        config=EngineConfig(),
        options=checked,
        name="sqlite",
        model="m",
        process_index=process_index,
    )
    return SqliteStatLogger(context)


def batch(count: int = 1, **facts: Any) -> IterationStats:
    """A batch of outputs in which requests finished."""
    stats = FinishedRequestStats(
        request_id="r-1",
        finish_reason=FinishReason.STOP,
        num_prompt_tokens=12,
        num_generation_tokens=3,
        labels={"route": "/chat"},
    )
    changed = msgspec.structs.replace(stats, **facts)
    return IterationStats(
        timestamp=0.0,
        num_prompt_tokens=12,
        num_generation_tokens=3,
        time_to_first_token=[0.5, 1.5],
        finished=[changed] * count,
    )


def rows(path: Path, table: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY rowid")]


@contextmanager
def write_lock(path: Path) -> Iterator[None]:
    """Another program is in the middle of writing."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def test_a_finished_request_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    logger = subject(path)
    logger.record(
        None,
        batch(tenant="acme", e2e_latency=2.5, max_tokens=10**30, time_to_first_token=0.25),
        engine_index=3,
    )
    logger.close()
    (process,) = rows(path, "processes")
    assert (process["model"], process["pid"], process["num_dropped"]) == ("m", os.getpid(), 0)
    assert process["closed_at"] >= process["started_at"]
    (row,) = rows(path, "finished_requests")
    assert process["started_at"] <= row.pop("ended_at") <= process["closed_at"]
    assert json.loads(row.pop("labels")) == {"route": "/chat"}
    assert row == {
        "process_id": process["process_id"],
        "engine_index": 3,
        "request_id": "r-1",
        "finish_reason": "stop",
        "tenant": "acme",
        "n": 1,
        "pooling": 0,
        "max_tokens": 2**63 - 1,
        "num_prompt_tokens": 12,
        "num_cached_tokens": 0,
        "num_generation_tokens": 3,
        "num_preemptions": 0,
        "e2e_latency_s": 2.5,
        "queue_time_s": 0.0,
        "prefill_time_s": 0.0,
        "decode_time_s": 0.0,
        "time_to_first_token_s": 0.25,
    }


def test_an_interval_is_a_row_for_each_engine_that_did_something(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    logger = subject(path)
    state = SchedulerStats(
        num_running=2,
        num_waiting=1,
        num_preempted=1,
        kv_blocks_total=10,
        kv_blocks_free=4,
        prefix_cache=PrefixCacheStats(),
    )
    logger.record(state, batch(), engine_index=0)
    logger.record(msgspec.structs.replace(state, num_running=0), None, engine_index=0)
    logger.record(None, batch(count=2), engine_index=1)
    for reason in ("draining", "queue_full", "queue_full"):
        logger.record_rejection(reason)
    logger.report()
    logger.report()
    logger.close()
    first, second = rows(path, "intervals")
    assert first["began_at"] <= first["ended_at"]
    assert (first["engine_index"], first["num_finished"], first["num_preempted"]) == (0, 1, 2)
    assert (first["num_running"], first["num_waiting"]) == (0, 1)
    assert first["kv_cache_usage"] == pytest.approx(0.6)
    assert first["mean_time_to_first_token_s"] == 1.0
    assert first["mean_inter_token_latency_s"] is None
    assert (second["engine_index"], second["num_finished"]) == (1, 2)
    assert second["num_running"] is second["kv_cache_usage"] is None
    refused = {row["reason"]: row["num_requests"] for row in rows(path, "rejections")}
    assert refused == {"draining": 1, "queue_full": 2}


def test_any_text_and_any_number_can_be_stored(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    logger = subject(path)
    odd = "\ud800'; DROP TABLE processes; --\0"
    logger.record(
        None, batch(request_id=odd, tenant=odd, labels={odd: odd}, e2e_latency=float("nan"))
    )
    logger.close()
    (row,) = rows(path, "finished_requests")
    assert row["tenant"] == row["request_id"] == odd.replace("\ud800", "\\ud800")
    assert json.loads(row["labels"]) == {odd: odd}
    assert row["e2e_latency_s"] is None


def test_outputs_do_not_wait_for_a_program_that_holds_the_database(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.db"
    logger = subject(path, max_queued=10)
    with write_lock(path):
        for _ in range(30):
            logger.record(None, batch())
        # The thread has up to a batch in its hand, and 10 may wait.
        assert 0 < logger.num_dropped <= 20
    logger.close()
    logger.close()
    (process,) = rows(path, "processes")
    assert process["num_dropped"] == logger.num_dropped
    assert len(rows(path, "finished_requests")) + logger.num_dropped == 30
    assert f"{logger.num_dropped} rows were dropped in all" in caplog.text


def test_the_end_does_not_wait_for_ever(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "CLOSE_S", 0.05)
    monkeypatch.setattr(writer_module, "BUSY_S", 0.05)
    path = tmp_path / "s.db"
    logger = subject(path)
    with write_lock(path):
        for _ in range(3):
            logger.record(None, batch())
        logger.close()
    assert "could not be written within 0.05 s" in caplog.text
    assert logger.num_dropped == 3
    assert rows(path, "finished_requests") == []


def test_a_write_that_failed_is_raised_once(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    logger = subject(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE finished_requests")
    logger.record(None, batch())
    with pytest.raises(sqlite3.OperationalError, match="finished_requests"):
        logger.close()
    logger.close()


def test_old_rows_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    first = subject(path)
    first.record(None, batch(request_id="old"))
    first.report()
    first.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE finished_requests SET ended_at = ended_at - 90000")
    for keep_days, found in ((2, ["old", "2"]), (1, ["2", "1"])):
        again = subject(path, keep_days=keep_days)
        again.record(None, batch(request_id=str(keep_days)))
        again.close()
        assert [row["request_id"] for row in rows(path, "finished_requests")] == found
    assert len(rows(path, "intervals")) == 1


def test_rows_are_read_while_it_writes(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    logger = subject(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM finished_requests").fetchone() == (0,)
        logger.record(None, batch())
        logger.close()
        assert reader.execute("SELECT count(*) FROM finished_requests").fetchone() == (0,)
    assert len(rows(path, "finished_requests")) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


PROCESS = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_sqlite_logger import batch, subject
logger = subject(Path(sys.argv[1]), process_index=int(sys.argv[3]))
for _ in range(50):
    logger.record(None, batch())
    logger.report()
logger.close()
assert not logger.num_dropped
"""


def test_processes_share_a_database_that_none_has_made(tmp_path: Path) -> None:
    path, tests = tmp_path / "s.db", str(Path(__file__).parent)
    started = [
        subprocess.Popen([sys.executable, "-c", PROCESS, str(path), tests, str(index)])
        for index in range(4)
    ]
    assert [process.wait(120) for process in started] == [0] * 4
    ids = {row["process_id"]: row["process_index"] for row in rows(path, "processes")}
    assert sorted(ids.values()) == [0, 1, 2, 3]
    for table in ("finished_requests", "intervals"):
        counts = [sum(row["process_id"] == one for row in rows(path, table)) for one in ids]
        assert counts == [50] * 4
    assert [file.name for file in tmp_path.iterdir()] == ["s.db"]


def test_threads_open_a_database_at_once(tmp_path: Path) -> None:
    """As processes that start at the same moment do."""
    path, barrier = tmp_path / "s.db", threading.Barrier(8)
    failures: list[BaseException] = []

    def start() -> None:
        barrier.wait()
        try:
            subject(path).close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(rows(path, "processes")) == 8


def make(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_what_is_no_database_of_this_plugin_is_left_alone(tmp_path: Path) -> None:
    other, text, newer = (tmp_path / name for name in ("other", "text", "newer"))
    make(other, "CREATE TABLE t (x)")
    text.write_text("no database" * 1000)
    subject(newer).close()
    make(newer, f"PRAGMA user_version = {VERSION + 1}")
    for path, said in (
        (other, "another program"),
        (text, "not a database"),
        (newer, f"version {VERSION + 1}, and this release writes version {VERSION}"),
        (tmp_path / "missing" / "s.db", "No such file"),
        (tmp_path, "unable to open"),
        (Path("/dev/null"), "can not be used"),
        (Path("a\0b"), "null"),
    ):
        before = path.read_bytes() if path in (other, text, newer) else b""
        with pytest.raises(PluginConfigError, match=rf"options.sqlite.path is .*{said}.*; name"):
            subject(path)
        assert not before or path.read_bytes() == before


def test_a_name_that_means_memory_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    logger = subject(Path(":memory:"))
    logger.record(None, batch())
    logger.close()
    assert len(rows(tmp_path / ":memory:", "finished_requests")) == 1


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"path": ""},
        {"path": "x", "keep_days": 0},
        {"path": "x", "max_queued": 0},
        {"file": "x"},
    ],
)
def test_options_that_are_wrong_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(options, SqliteOptions)


def test_the_plugin_offers_the_stat_logger() -> None:
    (provider,) = plugin.register_stat_loggers()
    assert provider.name == plugin.PLUGIN.name == "sqlite"
