"""Profiles of what the worker computes, with torch.profiler."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import torch.profiler

from hookspecs.errors import CommandError

__all__ = ["TraceRecorder"]


_PROFILER = threading.Lock()
"""Held while a recording runs: torch has one profiler a process, and does not check that."""


class TraceRecorder:
    """Records the thread that starts it: the worker's."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._count = 0
        """Traces so far: the next one's number."""
        self._directory = Path()
        self._profiler: torch.profiler.profile | None = None

    def start(self, directory: str) -> None:
        """Make the directory (mode 0700) unless it exists, and record from now on. CommandError
        when that can not be, or a recording runs."""
        if self._profiler is not None:
            raise CommandError(
                f"a profile is being recorded already, for {str(self._directory)!r}; stop it "
                "first (stop_profile)"
            )
        path = Path(directory).absolute()
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise CommandError(f"the directory {directory!r} can not be made: {error}") from error
        if not os.access(path, os.W_OK | os.X_OK):
            raise CommandError(f"the directory {directory!r} is not writable")
        if not _PROFILER.acquire(blocking=False):
            raise CommandError(
                "another worker of this process is recording a profile; only one at a time can"
            )
        profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
        try:
            profiler.start()
        except Exception as error:
            _PROFILER.release()
            raise CommandError(f"torch's profiler can not start: {error}") from error
        self._directory, self._profiler = path, profiler

    def stop(self) -> str:
        """End the recording and write it as a Chrome trace, `framework-worker-<rank>-<pid>-<n>
        .json` without the space; its absolute path. CommandError without a recording, or when
        the file can not be written: the recording is lost then."""
        if self._profiler is None:
            raise CommandError("no profile is being recorded; start one first (start_profile)")
        profiler = self._end()
        try:
            path = self._new_file()
            profiler.export_chrome_trace(str(path))
        except (OSError, RuntimeError) as error:
            raise CommandError(
                f"the profile can not be written to {str(self._directory)!r}: {error}"
            ) from error
        return str(path)

    def abandon(self) -> None:
        """End a recording, if there is one, and write nothing."""
        if self._profiler is not None:
            self._end()

    def _end(self) -> torch.profiler.profile:
        profiler, self._profiler = self._profiler, None
        assert profiler is not None
        try:
            profiler.stop()
        finally:
            _PROFILER.release()
        return profiler

    def _new_file(self) -> Path:
        """An empty file that was not there before."""
        while True:
            name = f"framework-worker-{self._rank}-{os.getpid()}-{self._count}.json"
            self._count += 1
            path = self._directory / name
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            except FileExistsError:
                continue
            return path
