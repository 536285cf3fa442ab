"""Directories of a launch: private, found by sweep once their launch is dead, never others."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from framework.transport import runtime_dir
from framework.transport.runtime_dir import RuntimeDir, sweep
from hookspecs.errors import TransportError

LAUNCH = """
import sys, tempfile
from pathlib import Path
from framework.transport import runtime_dir
tempfile.tempdir = sys.argv[1]
runtime_dir.SHARED_MEMORY = Path(sys.argv[2])
made = runtime_dir.RuntimeDir.create()
(made.sockets / "s").touch()
(made.tensors / "t").touch()
print(made.sockets, flush=True)
sys.stdin.read()
"""


class Place:
    """The two base directories, for this process and for launches in other processes."""

    def __init__(self, base: Path) -> None:
        self.tmp, self.shm = base / "tmp", base / "shm"
        self.tmp.mkdir()
        self.shm.mkdir()

    def everything(self) -> list[Path]:
        return sorted([*self.tmp.iterdir(), *self.shm.iterdir()])

    def launch(self) -> tuple[subprocess.Popen[str], Path]:
        process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(self.tmp), str(self.shm)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.fixture
def place(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    place = Place(short_dir)
    monkeypatch.setattr(tempfile, "tempdir", str(place.tmp))
    monkeypatch.setattr(runtime_dir, "SHARED_MEMORY", place.shm)
    monkeypatch.setattr(runtime_dir, "RELEASE_S", 0.0)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return place


def test_two_private_directories_of_one_name(place: Place) -> None:
    made = RuntimeDir.create()
    assert made.sockets.parent == place.tmp
    assert made.tensors.parent == place.shm
    assert made.sockets.name == made.tensors.name
    for directory in (made.sockets, made.tensors):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert made.address("requests") == f"ipc://{made.sockets}/requests"
    (made.tensors / "t").touch()
    made.remove()
    assert place.everything() == []
    made.remove()


def test_without_shared_memory_tensors_lie_beside_the_sockets(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for shared in (place.tmp / "absent", place.tmp):
        monkeypatch.setattr(runtime_dir, "SHARED_MEMORY", shared)
        made = RuntimeDir.create()
        assert made.tensors.parent == made.sockets
        assert RuntimeDir.open(made.sockets).tensors == made.tensors
        made.remove()
        assert place.everything() == []


def test_the_runtime_directory_of_the_session_is_preferred(
    place: Place, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = short_dir / "run"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    made = RuntimeDir.create()
    assert made.sockets.parent == runtime
    made.remove()


def test_an_unusable_runtime_directory_is_not_taken(
    place: Place, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public, long = short_dir / "public", short_dir / ("x" * 100)
    public.mkdir()
    public.chmod(0o755)
    long.mkdir(mode=0o700)
    link = short_dir / "link"
    link.symlink_to(long)
    for unusable in (public, long, link, short_dir / "absent", Path("relative"), Path("")):
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(unusable))
        made = RuntimeDir.create()
        assert made.sockets.parent == place.tmp
        made.remove()


def test_a_path_too_long_for_sockets_is_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    long = place.tmp / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(TransportError, match="107 bytes"):
        RuntimeDir.create()


def test_a_place_that_can_not_be_written_is_told(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(place.tmp / "absent"))
    with pytest.raises(TransportError, match="TMPDIR"):
        RuntimeDir.create()
    assert place.everything() == []


@pytest.mark.parametrize("name", ["", "..", "a/b", "x" * 25, "é", "a\n"])
def test_names_of_sockets(name: str, place: Place) -> None:
    made = RuntimeDir.create()
    with pytest.raises(TransportError):
        made.address(name)
    made.remove()


def test_sweep_leaves_what_lives_and_removes_what_is_dead(place: Place) -> None:
    own = RuntimeDir.create()
    process, path = place.launch()
    try:
        assert sweep() == []
    finally:
        kill(process)
    assert sorted(sweep()) == sorted([path, place.shm / path.name])
    assert place.everything() == sorted([own.sockets, own.tensors])
    own.remove()


def test_another_process_removes_when_the_creator_is_dead(place: Place) -> None:
    process, path = place.launch()
    try:
        other = RuntimeDir.open(path)
        assert other.tensors == place.shm / path.name
        with pytest.raises(TransportError, match="still runs"):
            other.remove()
        assert (other.sockets / "s").exists()
        assert (other.tensors / "t").exists()
    finally:
        kill(process)
    other.remove()
    assert place.everything() == []
    other.remove()


def test_another_process_waits_until_a_dying_creator_has_released_its_lock(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, path = place.launch()
    monkeypatch.setattr(runtime_dir, "RELEASE_S", 60.0)
    others = [threading.Thread(target=RuntimeDir.open(path).remove) for _ in range(3)]
    for thread in others:
        thread.start()
    kill(process)
    for thread in others:
        thread.join()
    assert place.everything() == []


def test_a_forked_child_does_not_remove_what_its_parent_uses(place: Place) -> None:
    made = RuntimeDir.create()
    child = os.fork()
    if child == 0:
        try:
            made.remove()
        except TransportError:
            os._exit(3)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert made.sockets.is_dir()
    made.remove()


def test_open_refuses_what_is_not_a_private_directory_of_ours(place: Place) -> None:
    name = f"framework-{os.getuid()}-{'0' * 16}"
    made = RuntimeDir.create()
    (place.tmp / name).symlink_to(made.sockets)
    (place.tmp / "other").mkdir(mode=0o700)
    for path in (
        place.tmp / name,
        place.tmp / "other",
        place.tmp / name.replace("0" * 16, "1" * 16),
    ):
        with pytest.raises(TransportError):
            RuntimeDir.open(path)
    made.tensors.chmod(0o755)
    with pytest.raises(TransportError):
        RuntimeDir.open(made.sockets)
    made.remove()


def test_sweep_touches_nothing_else(place: Place) -> None:
    uid, token = os.getuid(), "0" * 16
    victim = place.tmp / "victim"
    victim.mkdir()
    (victim / "file").touch()
    (place.tmp / f"framework-{uid}-{token}").symlink_to(victim)
    (place.shm / f"framework-{uid}-{token}").touch()
    for name in (
        f"framework-{uid}-{token}0",
        f"framework-{uid}-{token[1:]}",
        f"framework-{uid}-{'G' * 16}",
        f"framework-{uid + 1}-{token}",
        f"xframework-{uid}-{token}",
        f"framework-{uid}-{token}\n",
        "framework",
    ):
        (place.tmp / name).mkdir()
    before = place.everything()
    assert sweep() == []
    assert place.everything() == before
    assert (victim / "file").exists()


def test_sweep_follows_no_link_inside(place: Place) -> None:
    victim = place.tmp / "victim"
    victim.mkdir()
    (victim / "file").touch()
    stale = place.tmp / f"framework-{os.getuid()}-{'0' * 16}"
    stale.mkdir()
    (stale / "link").symlink_to(victim)
    assert sweep() == [stale]
    assert (victim / "file").exists()


def test_sweep_leaves_directories_of_other_users(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = place.tmp / f"framework-{os.getuid()}-{'0' * 16}"
    stale.mkdir()
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    assert sweep() == []
    assert stale.exists()


def test_launches_that_start_while_others_sweep_keep_their_directories(place: Place) -> None:
    stop, errors = threading.Event(), []

    def sweep_on() -> None:
        try:
            while not stop.is_set():
                sweep()
        except BaseException as error:
            errors.append(error)

    sweepers = [threading.Thread(target=sweep_on) for _ in range(2)]
    for thread in sweepers:
        thread.start()
    try:
        launches = [RuntimeDir.create() for _ in range(100)]
    finally:
        stop.set()
        for thread in sweepers:
            thread.join()
    assert errors == []
    for made in launches:
        assert made.sockets.is_dir()
        assert made.tensors.is_dir()
        made.remove()
    assert sweep() is not None
    assert place.everything() == []
