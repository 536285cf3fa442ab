"""The database: opened, checked, made if it is new."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from typing import NamedTuple

__all__ = ["VERSION", "Process", "UnusableDatabase", "is_busy", "open_database"]

VERSION = 1
"""Of the tables. A release that changes them has another number."""
_APPLICATION = 0x65667371
"""Tells this database from those of other programs."""
_OPEN_S = 10.0
"""How long it waits for others that open it, each of which holds its lock for a moment."""
_BETWEEN_TRIES_S = 0.01

_TABLES = (
    """CREATE TABLE processes (
        process_id INTEGER PRIMARY KEY,
        started_at REAL NOT NULL,
        closed_at REAL,
        pid INTEGER NOT NULL,
        process_index INTEGER NOT NULL,
        model TEXT NOT NULL,
        num_dropped INTEGER NOT NULL DEFAULT 0
    )""",
    """CREATE TABLE finished_requests (
        process_id INTEGER NOT NULL REFERENCES processes,
        engine_index INTEGER NOT NULL,
        ended_at REAL NOT NULL,
        request_id TEXT NOT NULL,
        finish_reason TEXT NOT NULL,
        tenant TEXT NOT NULL,
        labels TEXT NOT NULL,
        n INTEGER NOT NULL,
        pooling INTEGER NOT NULL,
        max_tokens INTEGER,
        num_prompt_tokens INTEGER NOT NULL,
        num_cached_tokens INTEGER NOT NULL,
        num_generation_tokens INTEGER NOT NULL,
        num_preemptions INTEGER NOT NULL,
        e2e_latency_s REAL,
        queue_time_s REAL,
        prefill_time_s REAL,
        decode_time_s REAL,
        time_to_first_token_s REAL
    )""",
    """CREATE TABLE intervals (
        process_id INTEGER NOT NULL REFERENCES processes,
        engine_index INTEGER NOT NULL,
        began_at REAL NOT NULL,
        ended_at REAL NOT NULL,
        num_finished INTEGER NOT NULL,
        num_prompt_tokens INTEGER NOT NULL,
        num_cached_tokens INTEGER NOT NULL,
        num_generation_tokens INTEGER NOT NULL,
        mean_time_to_first_token_s REAL,
        mean_inter_token_latency_s REAL,
        num_preempted INTEGER NOT NULL,
        num_running INTEGER,
        num_waiting INTEGER,
        kv_cache_usage REAL
    )""",
    """CREATE TABLE rejections (
        process_id INTEGER NOT NULL REFERENCES processes,
        began_at REAL NOT NULL,
        ended_at REAL NOT NULL,
        reason TEXT NOT NULL,
        num_requests INTEGER NOT NULL
    )""",
    "CREATE INDEX finished_requests_by_end ON finished_requests (ended_at)",
    "CREATE INDEX intervals_by_end ON intervals (ended_at)",
    "CREATE INDEX rejections_by_end ON rejections (ended_at)",
)


class UnusableDatabase(Exception):
    """The file is no database of this plugin, or of another version, or can not be used so."""


class Process(NamedTuple):
    """The front-end process that opens it."""

    started_at: float
    """Seconds since 1970, UTC."""
    pid: int
    process_index: int
    model: str


def open_database(path: str, process: Process) -> tuple[sqlite3.Connection, int]:
    """A connection for one thread at a time, any, in autocommit mode, and the id under which
    `process` is noted. Tables are made in a file that is new or empty; several processes may do
    so at once.

    Write-ahead logging (https://sqlite.org/wal.html): who reads does not stop who writes. Raises
    UnusableDatabase, OSError and sqlite3.Error.
    """
    path = os.path.abspath(path)  # SQLite has names that mean no file, such as :memory:
    # For its owner only: it names requests and tenants. SQLite gives its log the same mode. One
    # that is there is not opened: to close it would give back the locks of this process on it.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    until = time.monotonic() + _OPEN_S
    while True:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            return connection, _prepare(connection, process)
        except BaseException as error:
            connection.close()
            # SQLite itself does not wait where it can not rule out that both wait for ever, as
            # when two processes change the journal.
            if not is_busy(error) or time.monotonic() > until:
                raise
        time.sleep(_BETWEEN_TRIES_S)


def is_busy(error: BaseException) -> bool:
    """Whether another connection is in the way: to try again makes sense."""
    return (
        isinstance(error, sqlite3.OperationalError)
        and getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
    )


def _prepare(connection: sqlite3.Connection, process: Process) -> int:
    connection.execute("BEGIN IMMEDIATE")
    _make_or_check(connection)
    connection.execute("COMMIT")
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise UnusableDatabase(f"it can not have a write-ahead log there, but has {mode!r}")
    connection.execute("PRAGMA synchronous = NORMAL")
    process_id = connection.execute(
        "INSERT INTO processes (started_at, pid, process_index, model) VALUES (?, ?, ?, ?)", process
    ).lastrowid
    if process_id is None:
        raise UnusableDatabase("it does not number its rows")
    return process_id


def _make_or_check(connection: sqlite3.Connection) -> None:
    """Within a transaction, which the caller drops if this raises."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not tables:
        for statement in _TABLES:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
    elif application != _APPLICATION:
        raise UnusableDatabase("it is the database of another program")
    elif version != VERSION:
        raise UnusableDatabase(
            f"its tables have version {version}, and this release writes version {VERSION}"
        )
