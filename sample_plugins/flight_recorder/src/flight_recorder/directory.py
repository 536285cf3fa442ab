"""The directory of records, shared by all engines that were given it."""

from __future__ import annotations

import itertools
import os
import re
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = ["RecordDirectory"]

_NAME: Final = re.compile(r"flight-\d{8}T\d{6}\.\d{6}Z-engine\d+-pid\d+-\d+\.jsonl")
"""The names sort by time. Other files in the directory are not ours to delete."""

_numbers: Final = itertools.count()
"""Of the records of this process: two engines may fail in the same microsecond."""


class RecordDirectory:
    """Writes records, and deletes the oldest."""

    def __init__(self, path: str, max_files: int) -> None:
        self._path = Path(path)
        self._max_files = max_files

    def unusable(self) -> str | None:
        """Why no record can be written here, as far as can be told without writing: what there is
        of the path must be a directory in which this process may make files."""
        for each in (self._path, *self._path.parents):
            try:
                mode = os.stat(each).st_mode
            except FileNotFoundError:
                if each.is_symlink():
                    return f"{str(each)!r} is a link to nothing"
            except (OSError, ValueError) as error:
                return str(error)
            else:
                if not stat.S_ISDIR(mode):
                    return f"{str(each)!r} is no directory"
                may_write = os.access(each, os.W_OK | os.X_OK)
                return None if may_write else f"{str(each)!r} can not be written"
        return None

    def write(self, engine_index: int, seconds: float, lines: Iterable[bytes]) -> Path:
        """Write a record; `seconds`: its time. OSError when that fails; what was written of it
        stays: half a record may be the half that explains the failure."""
        self._path.mkdir(parents=True, exist_ok=True)
        # First, since the disk may be full of them.
        self._keep(self._max_files - 1)
        whole, micros = divmod(round(seconds * 1e6), 1_000_000)
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(whole))
        name = (
            f"flight-{stamp}.{micros:06}Z-engine{engine_index}-pid{os.getpid()}-"
            f"{next(_numbers)}.jsonl"
        )
        path = self._path / name
        # Never an existing file, and for its owner alone: it has ids, tenants and labels of users.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.writelines(lines)
        return path

    def _keep(self, count: int) -> None:
        records = sorted(path for path in self._path.iterdir() if _NAME.fullmatch(path.name))
        for path in records[: max(0, len(records) - count)]:
            path.unlink(missing_ok=True)  # another process may delete it, too
