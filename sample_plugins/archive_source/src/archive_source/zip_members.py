"""The members of a zip archive, in the order of its directory."""

from __future__ import annotations

import stat
import zipfile
from collections.abc import Iterator
from functools import partial
from typing import IO

from hookspecs.errors import UnsupportedModelError

from archive_source.member import MAX_MEMBERS, Member, too_large, too_many

__all__ = ["zip_members"]

_ENCRYPTED = 0x1
_ALLOWED = (0, stat.S_IFREG, stat.S_IFDIR)
"""Types of files in the upper half of the external attributes; 0: made where there are none."""


def zip_members(what: str, file: IO[bytes], max_bytes: int) -> Iterator[Member]:
    """Files and directories. UnsupportedModelError for anything else, for what is encrypted, and
    for more than `max_bytes` or members too many: before the first one is given."""
    with zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
        if len(infos) > MAX_MEMBERS:
            raise too_many(what)
        if sum(info.file_size for info in infos) > max_bytes:
            raise too_large(what, max_bytes)
        for info in infos:
            _check(what, info)
        for info in infos:
            name = info.filename  # may be empty, for which is_dir of zipfile raises
            yield Member(name, name.endswith("/"), info.file_size, partial(archive.open, info))


def _check(what: str, info: zipfile.ZipInfo) -> None:
    name = info.filename[:256]
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in _ALLOWED:
        raise UnsupportedModelError(
            f"{what} has a member {name!r} that is a "
            f"{'symbolic link' if kind == stat.S_IFLNK else f'file of type {kind:o}'}. Only "
            "regular files and directories are unpacked, and nothing of this one is used. Make "
            "it again with the files themselves (zip without --symlinks)."
        )
    if info.flag_bits & _ENCRYPTED:
        raise UnsupportedModelError(
            f"{what} has a member {name!r} that is encrypted. Make the archive again without a "
            "password, or unpack it yourself and give the directory as the model."
        )
