"""Writes an archive into a directory, which nothing that the archive says can lead out of."""

from __future__ import annotations

import errno
import lzma
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from hookspecs.errors import UnsupportedModelError

from archive_source.member import Member, relative_path, too_large
from archive_source.tar_members import tar_gz_members, tar_members
from archive_source.zip_members import zip_members

__all__ = ["FORMATS", "unpack"]

Reader = Callable[[str, IO[bytes], int], Iterator[Member]]
Progress = Callable[[str, float], None]

FORMATS: dict[str, Reader] = {
    ".tar": tar_members,
    ".tar.gz": tar_gz_members,
    ".zip": zip_members,
}
"""By the end of the name."""

_CHUNK = 1 << 20  # bytes
_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    NotImplementedError,
    RecursionError,
    ValueError,
)
"""What the readers of the standard library raise for data that they can not read."""
_DAMAGE_NUMBERS = (None, errno.EINVAL, errno.ENAMETOOLONG, errno.EILSEQ)
"""Of an OSError: gzip and bz2 give none; the others are of places and names that can not be."""


def unpack(archive: Path, directory: Path, max_bytes: int, progress: Progress) -> None:
    """Writes the members of `archive` into `directory`, which is empty and nobody else's.

    Regular files, for their owner alone, and on disk when this returns; what an archive says of
    owners, modes and times is ignored. UnsupportedModelError for an archive that is damaged,
    larger than `max_bytes` when unpacked, or has other members; `directory` then holds a part.
    OSError when files can not be read or written.
    """
    what = repr(str(archive))
    read = next(read for end, read in FORMATS.items() if archive.name.endswith(end))
    with archive.open("rb") as file:
        size = os.fstat(file.fileno()).st_size

        def report() -> None:
            progress(f"unpacking {archive.name}", min(file.tell() / max(size, 1), 1.0))

        try:
            left = max_bytes
            for member in read(what, file, max_bytes):
                path = directory / relative_path(what, member.name)
                if member.is_directory:
                    _make_directory(what, member, path)
                    continue
                if member.size > left:
                    raise too_large(what, max_bytes)
                left -= _write(what, member, path, left, report)
                if left < 0:
                    raise too_large(what, max_bytes)
        except (*_DAMAGE, OSError) as error:
            if isinstance(error, OSError) and error.errno not in _DAMAGE_NUMBERS:
                raise
            raise UnsupportedModelError(
                f"{what} can not be read as an archive ({type(error).__name__}: "
                f"{str(error)[:256]}). It is damaged, incomplete, or of another format than its "
                "name says; download or make it again."
            ) from error
    progress(f"unpacking {archive.name}", 1.0)


def _make_directory(what: str, member: Member, path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise _twice(what, member) from error


def _write(what: str, member: Member, path: Path, most: int, report: Callable[[], None]) -> int:
    """Bytes written; when more than `most`, not the whole file."""
    _make_directory(what, member, path.parent)
    try:
        out = path.open("xb")
    except (FileExistsError, IsADirectoryError) as error:
        raise _twice(what, member) from error
    written = 0
    with out, member.open() as data:
        while written <= most and (chunk := data.read(_CHUNK)):
            written += out.write(chunk)
            report()
        out.flush()
        os.fsync(out.fileno())  # the name of the directory says that it is complete
    return written


def _twice(what: str, member: Member) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{what} has more than one member for {member.name[:256]!r}, so it is not clear which one "
        "is meant. Make the archive again from one directory."
    )
