"""Typed access to the metadata and tensors of a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader, ReaderTensor

from hookspecs.errors import UnsupportedModelError

__all__ = ["GgufFile"]


class _Reader(GGUFReader):  # type: ignore[misc]  # checked without the package's types
    """Reads through a plain array: slicing a numpy.memmap costs several times as much, and the
    reader slices it for each string of the vocabulary."""

    @property
    def data(self) -> npt.NDArray[Any]:
        return self._plain

    @data.setter
    def data(self, value: npt.NDArray[Any]) -> None:
        self._plain = np.asarray(value)

    def _get(self, offset: Any, dtype: Any, count: Any = 1, *order: Any, **more: Any) -> Any:
        """Refuses what lies beyond the end, which the base class gives as an empty array: the
        lengths in a damaged file would make it read nothing, 2**60 times."""
        if int(offset) + int(count) * np.dtype(dtype).itemsize > len(self.data):
            raise ValueError("it ends before the content that it announces")
        return super()._get(offset, dtype, count, *order, **more)


class GgufFile:
    """An open GGUF file: `tensors` by name, metadata by key.

    Raises UnsupportedModelError when `path` is not a complete, little-endian, unsplit GGUF file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            reader = _Reader(path)
        except (
            ValueError,
            IndexError,
            KeyError,
            OverflowError,
            MemoryError,
            RecursionError,
        ) as error:
            raise UnsupportedModelError(
                f"{str(path)!r} is not a readable GGUF file ({error}). It may be incomplete, "
                "damaged or of another format; download it again."
            ) from error
        self._fields = reader.fields
        self.tensors: dict[str, ReaderTensor] = {t.name: t for t in reader.tensors}
        if reader.byte_order == "S":
            raise UnsupportedModelError(
                f"{str(path)!r} was written for the other byte order. "
                "Get the file for this kind of machine."
            )
        if (self.get("split.count") or 1) > 1:
            raise UnsupportedModelError(
                f"{str(path)!r} is one of {self.get('split.count')} parts of a model. "
                "Join them first: llama-gguf-split --merge FIRST_PART OUTPUT.gguf"
            )

    def get(self, key: str) -> Any:
        """The value of `key`: number, bool, str or list; None when the file has no such key.

        float32 values become the shortest decimal number that is the same float32. Raises
        UnsupportedModelError for damaged text.
        """
        field = self._fields.get(key)
        if field is None:
            return None
        try:
            value = field.contents()
        except UnicodeDecodeError as error:
            raise self.error(
                f"the metadata {key!r} is not valid UTF-8 ({error})",
                "The file is damaged; download it again.",
            ) from error
        if isinstance(value, float):
            return float(str(np.float32(value)))
        return value

    def require(self, key: str) -> Any:
        """Like `get`; raises UnsupportedModelError when the file has no such key."""
        value = self.get(key)
        if value is None:
            raise self.error(f"the metadata {key!r} is missing", "Get another version of the file.")
        return value

    def count(self, key: str, default: int | None = None) -> int:
        """The value of `key`, a whole number above 0; `default` when the file has no such key.

        Raises UnsupportedModelError when it is something else, or missing without a default.
        """
        value = self.get(key)
        if value is None:
            value = self.require(key) if default is None else default
        if isinstance(value, bool) or not (isinstance(value, int) and value > 0):
            raise self.error(
                f"the metadata {key!r} is {value!r}; it must be a whole number above 0",
                "The file is damaged; download it again.",
            )
        return value

    def error(self, what: str, advice: str) -> UnsupportedModelError:
        """An error about this file: what is wrong with it, and what to do."""
        return UnsupportedModelError(f"GGUF file {str(self.path)!r}: {what}. {advice}")
