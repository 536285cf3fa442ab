"""The members of a tar archive, in its order."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import IO

from hookspecs.errors import UnsupportedModelError

from archive_source.forward_reader import MAX_READ, ForwardReader
from archive_source.member import MAX_MEMBERS, Member, too_large, too_many

__all__ = ["tar_gz_members", "tar_members"]


def tar_gz_members(what: str, file: IO[bytes], max_bytes: int) -> Iterator[Member]:
    """As `tar_members`, compressed by gzip (RFC 1952)."""
    with gzip.GzipFile(fileobj=file, mode="rb") as stream:
        yield from tar_members(what, stream, max_bytes)  # type: ignore[arg-type]


def tar_members(what: str, stream: IO[bytes], max_bytes: int) -> Iterator[Member]:
    """Files and directories; UnsupportedModelError for anything else, and for more than
    `max_bytes` with headers and padding. tarfile.ReadError for one that is damaged or cut off:
    tarfile itself takes a header that is broken for the end."""
    reader = ForwardReader(stream, max_bytes, lambda: too_large(what, max_bytes))
    with tarfile.TarFile(fileobj=reader, mode="r") as archive:
        for count, info in enumerate(archive, 1):
            if count > MAX_MEMBERS:
                raise too_many(what)
            if info.issparse() or not (info.isreg() or info.isdir()):
                raise _special(what, info)
            yield Member(info.name, info.isdir(), info.size, _Opener(archive, info))
    if reader.last != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("it does not end as a tar archive does")
    while reader.read(MAX_READ):  # padding; the checksum of a compressed stream is at its end
        pass


class _Opener:
    def __init__(self, archive: tarfile.TarFile, info: tarfile.TarInfo) -> None:
        self._archive = archive
        self._info = info

    def __call__(self) -> AbstractContextManager[IO[bytes]]:
        data = self._archive.extractfile(self._info)
        if data is None:
            raise tarfile.ReadError(f"{self._info.name!r} is no file")
        return data


def _special(what: str, info: tarfile.TarInfo) -> UnsupportedModelError:
    kinds = {
        tarfile.SYMTYPE: f"a symbolic link to {info.linkname[:256]!r}",
        tarfile.LNKTYPE: f"a hard link to {info.linkname[:256]!r}",
        tarfile.CHRTYPE: "a device",
        tarfile.BLKTYPE: "a device",
        tarfile.FIFOTYPE: "a pipe",
    }
    kind = "a sparse file" if info.issparse() else kinds.get(info.type, f"of type {info.type!r}")
    return UnsupportedModelError(
        f"{what} has a member {info.name[:256]!r} that is {kind}. Only regular files and "
        "directories are unpacked, and nothing of this one is used. Make it again with the files "
        "themselves (GNU tar: --dereference --hard-dereference, without --sparse)."
    )
