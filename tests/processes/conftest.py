"""Each test has a directory of its own for temporary files, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from framework.transport.runtime_dir import RuntimeDir
from tests.processes.launches import Place, until


@pytest.fixture(autouse=True)
def place(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """Afterwards: no process, no directory for sockets, nothing in shared memory."""
    tmp_path_factory.getbasetemp()  # is made below the directory for temporary files, once
    path = Path(tempfile.mkdtemp(prefix="p-"))
    for name in [name for name in os.environ if name.startswith("FRAMEWORK_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("TMPDIR", str(path))
    monkeypatch.setenv("SPT_NOENV", "1")  # setproctitle writes over the environment otherwise
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    here = Place(path)
    create = RuntimeDir.create

    def noted() -> RuntimeDir:
        made = create()
        here.note(made.sockets.name)
        return made

    monkeypatch.setattr(RuntimeDir, "create", noted)
    yield here
    try:
        until(here.is_clean, 5.0)
    except AssertionError:
        pytest.fail(f"left behind: {here.processes()}, {here.runtime_dirs()}")
    finally:
        shutil.rmtree(path, ignore_errors=True)
