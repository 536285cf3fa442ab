"""The digest that names a converted GGUF file."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

__all__ = ["file_digest"]

_CHUNK = 16 << 20  # bytes


def file_digest(path: Path, directory: Path, progress: Callable[[str, float], None]) -> str:
    """SHA-256 of the content of `path` (absolute), in hexadecimal.

    The digest is kept in `directory` together with path, size and modification time, and is
    computed again only when one of them has changed.
    """
    stat = path.stat()
    state = {"path": str(path), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    record = directory / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:32]}.json"
    known = _read_record(record)
    digest = known.pop("sha256", None)
    if digest is not None and known == state:
        return str(digest)
    digest = _hash(path, stat.st_size, progress)
    directory.mkdir(parents=True, exist_ok=True)
    _replace(record, json.dumps({**state, "sha256": digest}))
    return digest


def _read_record(record: Path) -> dict[str, object]:
    try:
        value = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _hash(path: Path, size: int, progress: Callable[[str, float], None]) -> str:
    what = f"reading {path.name}"
    sha = hashlib.sha256()
    done = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            sha.update(chunk)
            done += len(chunk)
            progress(what, min(done / max(size, 1), 1.0))
    return sha.hexdigest()


def _replace(record: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=record.parent, suffix=".tmp")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, record)
