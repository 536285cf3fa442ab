"""`gguf.json` of a converted model: where its tensors lie in the GGUF file, for loaders that keep
them quantized."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from builtin_plugins.model_sources.gguf_weights import PlannedTensor

__all__ = ["RECORD", "point_to_file", "write_record"]

RECORD = "gguf.json"


def write_record(directory: Path, file: Path, tensors: Iterable[PlannedTensor]) -> None:
    """Writes an object with `file` (path, size in bytes, mtime_ns) and `tensors`: of each Hugging
    Face name the GGUF `type`, `shape`, `offset` in the file in bytes, and `heads`, the number of
    heads whose rows are interleaved in pairs, or 0. `tensors`: those that are not transposed."""
    places = {
        tensor.name: {
            "type": tensor.source.tensor_type.name,
            "shape": tensor.shape,
            "offset": int(tensor.source.data_offset),
            "heads": tensor.heads,
        }
        for tensor in tensors
    }
    record = {"file": _state(file), "tensors": places}
    (directory / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def point_to_file(directory: Path, file: Path) -> None:
    """Makes the record of a model that was converted before name `file`, whose content is the
    same but which may have been moved. OSError if the record is gone or damaged."""
    path = directory / RECORD
    try:
        record = dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise OSError(f"{str(path)!r} is damaged; remove its directory") from error
    state = _state(file)
    if record.get("file") == state:
        return
    handle, temporary = tempfile.mkstemp(dir=directory, prefix=f".{RECORD}-")
    own = Path(temporary)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as output:
            output.write(json.dumps({**record, "file": state}, indent=1) + "\n")
        own.replace(path)
    finally:
        own.unlink(missing_ok=True)


def _state(file: Path) -> dict[str, Any]:
    stat = file.stat()
    return {"path": str(file), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
