"""What is unpacked, what is refused, and what damage does."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import tempfile
import warnings
import zipfile
from pathlib import Path

import pytest
from hookspecs.errors import UnsupportedModelError
from hypothesis import given, settings
from hypothesis import strategies as st

from archive_source.forward_reader import MAX_READ
from archive_source.member import MAX_MEMBERS
from archive_source.unpack import unpack

LIMIT = 10 << 20
FILES = {"config.json": b"{}", "a/b.safetensors": bytes(1500), "a/empty": b"", "d/512": bytes(512)}


def tar_bytes(*members: tarfile.TarInfo, data: bytes = b"") -> bytes:
    """An archive of members that share their data."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for member in members:
            if member.isreg():
                member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def tar_member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = link
    return member


def zip_bytes(files: dict[str, bytes], mode: int = 0, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = method
            archive.writestr(info, data)
    return out.getvalue()


def good_tar(files: dict[str, bytes] = FILES) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tar_member("./", tarfile.DIRTYPE))
        for name, data in files.items():
            member = tar_member(f"./{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


ARCHIVES = {
    ".tar": good_tar(),
    ".tar.gz": gzip.compress(good_tar()),
    ".zip": zip_bytes(FILES),
}


def unpacked(data: bytes, end: str, folder: Path, limit: int = LIMIT) -> Path:
    archive, directory = folder / f"m{end}", folder / "inner" / "out"
    archive.write_bytes(data)
    directory.mkdir(parents=True)
    unpack(archive, directory, limit, lambda what, fraction: None)
    return directory


@pytest.mark.parametrize("end", ARCHIVES)
def test_files_are_written_for_their_owner(end: str, tmp_path: Path) -> None:
    directory = unpacked(ARCHIVES[end], end, tmp_path)
    found = {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }
    assert found == FILES
    assert not (directory / "config.json").stat().st_mode & stat.S_IXUSR


@pytest.mark.parametrize("end", ARCHIVES)
def test_progress_goes_up_to_one(end: str, tmp_path: Path) -> None:
    archive = tmp_path / f"m{end}"
    archive.write_bytes(ARCHIVES[end])
    (tmp_path / "out").mkdir()
    seen: list[tuple[str, float]] = []
    unpack(archive, tmp_path / "out", LIMIT, lambda what, part: seen.append((what, part)))
    assert {what for what, _ in seen} == {f"unpacking m{end}"}
    assert all(0 <= part <= 1 for _, part in seen)
    assert seen[-1][1] == 1


OUTSIDE = ["../evil", "/tmp/evil", "a/../../evil", "a\\..\\evil", "a/.."]


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("end", [".tar", ".zip"])
def test_names_that_lead_out_are_refused(end: str, name: str, tmp_path: Path) -> None:
    data = tar_bytes(tar_member(name)) if end == ".tar" else zip_bytes({name: b"x"})
    with pytest.raises(UnsupportedModelError, match="outside of its directory"):
        unpacked(data, end, tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / f"m{end}"]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (tarfile.SYMTYPE, "a symbolic link to '/etc/passwd'"),
        (tarfile.LNKTYPE, "a hard link to '/etc/passwd'"),
        (tarfile.CHRTYPE, "a device"),
        (tarfile.BLKTYPE, "a device"),
        (tarfile.FIFOTYPE, "a pipe"),
        (b"Z", "of type b'Z'"),
    ],
)
def test_what_is_no_file_in_a_tar_is_refused(kind: bytes, said: str, tmp_path: Path) -> None:
    data = tar_bytes(tar_member("x", kind, "/etc/passwd"))
    with pytest.raises(UnsupportedModelError, match=f"{said}. Only regular files"):
        unpacked(data, ".tar", tmp_path)


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFSOCK])
def test_what_is_no_file_in_a_zip_is_refused(kind: int, tmp_path: Path) -> None:
    data = zip_bytes({"ok": b"", "x": b"/etc/passwd"}, mode=kind | 0o777)
    with pytest.raises(UnsupportedModelError, match="regular files"):
        unpacked(data, ".zip", tmp_path)
    assert not list((tmp_path / "inner" / "out").iterdir())


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    data = bytearray(zip_bytes({"x": b"x"}))
    for header, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(header) + at] |= 1
    with pytest.raises(UnsupportedModelError, match="encrypted"):
        unpacked(bytes(data), ".zip", tmp_path)


@pytest.mark.parametrize("end", [".tar", ".zip"])
@pytest.mark.parametrize("names", [("x", "x"), ("x", "x/y"), ("x/y", "x"), ("x", "./x")])
def test_a_name_twice_is_refused(end: str, names: tuple[str, str], tmp_path: Path) -> None:
    if end == ".tar":
        data = tar_bytes(*map(tar_member, names))
    else:
        out = io.BytesIO()
        with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(out, "w") as archive:
            for name in names:
                archive.writestr(name, b"")
        data = out.getvalue()
    with pytest.raises(UnsupportedModelError, match="more than one member"):
        unpacked(data, end, tmp_path)


@pytest.mark.parametrize("end", ARCHIVES)
def test_the_bound_is_on_what_is_unpacked(end: str, tmp_path: Path) -> None:
    files = {f"{number}.bin": bytes(100_000) for number in range(3)}
    data = zip_bytes(files) if end == ".zip" else good_tar(files)
    data = gzip.compress(data) if end == ".tar.gz" else data
    with pytest.raises(UnsupportedModelError, match=r"more than 250000 bytes.*max_bytes"):
        unpacked(data, end, tmp_path, limit=250_000)
    written = sum(path.stat().st_size for path in (tmp_path / "inner").rglob("*.bin"))
    assert written <= 250_000


def test_a_zip_that_lies_about_sizes_is_bounded(tmp_path: Path) -> None:
    data = bytearray(zip_bytes({"x": bytes(1 << 20)}))
    honest = (1 << 20).to_bytes(4, "little")
    assert data.count(honest) == 2
    with pytest.raises(UnsupportedModelError, match="can not be read"):
        unpacked(bytes(data.replace(honest, (10).to_bytes(4, "little"))), ".zip", tmp_path, 1000)


def test_a_header_that_would_fill_memory_is_refused(tmp_path: Path) -> None:
    header = tar_member("x", tarfile.XHDTYPE)
    header.size = 1 << 30
    data = gzip.compress(header.tobuf() + bytes(2 * MAX_READ))
    with pytest.raises(UnsupportedModelError, match="header of 1073741824 bytes"):
        unpacked(data, ".tar.gz", tmp_path, limit=1 << 40)


@pytest.mark.parametrize("end", [".tar", ".zip"])
def test_too_many_members_are_refused(end: str, tmp_path: Path) -> None:
    names = [f"{number}/" for number in range(MAX_MEMBERS + 1)]
    if end == ".tar":
        block = tar_member("d", tarfile.DIRTYPE).tobuf()
        data = block * len(names) + bytes(1024)
    else:
        data = zip_bytes(dict.fromkeys(names, b""), method=zipfile.ZIP_STORED)
    with pytest.raises(UnsupportedModelError, match="more than 10000 members"):
        unpacked(data, end, tmp_path)


@pytest.mark.parametrize("end", ARCHIVES)
@pytest.mark.parametrize("data", [b"", b"no archive", bytes(10240)])
def test_what_is_no_archive_is_said(end: str, data: bytes, tmp_path: Path) -> None:
    if (end, data) == (".tar", bytes(10240)):  # an empty archive
        assert not list(unpacked(data, end, tmp_path).iterdir())
        return
    with pytest.raises(UnsupportedModelError, match="damaged, incomplete, or of another format"):
        unpacked(data, end, tmp_path)


def test_a_name_that_no_file_can_have_is_said(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="name too long"):
        unpacked(zip_bytes({"x" * 300: b""}), ".zip", tmp_path)


@settings(max_examples=40)
@given(st.sampled_from(sorted(ARCHIVES)), st.floats(0, 1, exclude_max=True))
def test_an_archive_that_was_cut_off_is_never_taken(end: str, part: float) -> None:
    data = ARCHIVES[end]
    whole = len(data) if end != ".tar" else len(data.rstrip(b"\0")) // 512 * 512
    with tempfile.TemporaryDirectory() as folder, pytest.raises(UnsupportedModelError):
        unpacked(data[: int(whole * part)], end, Path(folder))


@settings(max_examples=150)
@given(
    st.sampled_from(sorted(ARCHIVES)),
    st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_damage_writes_nothing_outside(end: str, changes: list[tuple[int, int]]) -> None:
    """Any bytes: it is unpacked below the directory, or refused with words."""
    data = bytearray(ARCHIVES[end])
    for at, value in changes:
        data[at % len(data)] = value
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            unpacked(bytes(data), end, folder)
        except UnsupportedModelError as error:
            assert f"m{end}" in str(error)
        assert {path.name for path in folder.iterdir()} == {f"m{end}", "inner"}
        assert {path.name for path in (folder / "inner").iterdir()} == {"out"}
        assert not any(path.is_symlink() for path in folder.rglob("*"))
