"""Large arrays as files: who sees them, and that none stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from framework.transport.codec import Decoder, Encoder, discard
from framework.transport.tensor_ipc import TensorStore
from hookspecs.errors import TransportError

LARGE = 4096


@pytest.fixture
def store(tmp_path: Path) -> TensorStore:
    return TensorStore(tmp_path, prefix="t", min_bytes=LARGE)


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def test_large_arrays_travel_beside_the_message(store: TensorStore, tmp_path: Path) -> None:
    array = np.arange(3000.0).reshape(30, 100)
    tensor = torch.arange(5000).to(torch.bfloat16).reshape(50, 100)
    small = np.ones(100)
    frames = Encoder(store).encode({"a": array, "b": tensor, "c": small})
    assert len(frames) == 1
    assert len(names(tmp_path)) == 2
    for name in names(tmp_path):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600

    back = Decoder(dict[str, Any], store).decode(frames)
    assert names(tmp_path) == []
    assert np.array_equal(back["a"], array)
    assert torch.equal(back["b"], tensor)
    assert np.array_equal(back["c"], small)
    assert not back["a"].flags.writeable
    back["b"] += 1  # pages of this process


def test_an_array_outlives_decoder_and_message(store: TensorStore) -> None:
    frames = Encoder(store).encode([np.full(LARGE, 7, np.uint8)])
    array = Decoder(list[Any], store).decode(frames)[0][10:20]
    del frames
    assert array.tolist() == [7] * 10


def test_the_stores_of_two_processes(store: TensorStore, tmp_path: Path) -> None:
    other = TensorStore(tmp_path, prefix="engine-core-1", min_bytes=LARGE)
    frames = Encoder(store).encode([np.ones(LARGE)])
    assert names(tmp_path)[0].startswith("tensor-t-")
    assert Decoder(list[Any], other).decode(frames)[0].sum() == LARGE


def test_views_are_written_as_what_they_show(store: TensorStore) -> None:
    base = np.arange(10_000).reshape(100, 100)
    back = Decoder(list[Any], store).decode(Encoder(store).encode([base.T, base[::2]]))
    assert np.array_equal(back[0], base.T)
    assert np.array_equal(back[1], base[::2])


def test_a_message_that_can_not_be_encoded_leaves_no_file(
    store: TensorStore, tmp_path: Path
) -> None:
    encoder = Encoder(store, max_bytes=1000)
    for last in (object(), "\ud800", np.ones(200)):
        with pytest.raises(TransportError):
            encoder.encode([np.ones(LARGE), last])
        assert names(tmp_path) == []


def test_discard_removes_the_files_of_a_message(store: TensorStore, tmp_path: Path) -> None:
    frames = Encoder(store).encode({"a": [np.ones(LARGE)], "b": np.ones(LARGE)})
    assert len(names(tmp_path)) == 2
    discard(frames, store)
    assert names(tmp_path) == []
    discard(frames, store)


def test_a_message_that_can_not_be_decoded_leaves_no_file(
    store: TensorStore, tmp_path: Path
) -> None:
    frames = Encoder(store).encode([np.ones(LARGE), "x", np.ones(LARGE)])
    with pytest.raises(TransportError):
        Decoder(list[int], store).decode(frames)
    assert names(tmp_path) == []


def test_a_message_is_received_once(store: TensorStore) -> None:
    frames = Encoder(store).encode([np.ones(LARGE)])
    decoder = Decoder(list[Any], store)
    decoder.decode(frames)
    with pytest.raises(TransportError, match="mapped"):
        decoder.decode(frames)


def test_there_is_no_store_at_the_other_end(store: TensorStore) -> None:
    frames = Encoder(store).encode([np.ones(LARGE)])
    with pytest.raises(TransportError, match="no tensor store"):
        Decoder(list[Any]).decode(frames)
    discard(frames, store)


def file_message(name: str, nbytes: int) -> list[bytes]:
    """A message about one uint8 array in a file, written by hand."""
    head = bytes([5, 1, 0, 0, 0, 0]) + nbytes.to_bytes(8, "little")
    return [msgspec.msgpack.encode([msgspec.msgpack.Ext(3, head + name.encode())])]


NAME = "tensor-t-" + "0" * 32


def test_the_hand_written_message_is_right(store: TensorStore, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"x" * 10)
    back = Decoder(list[Any], store).decode(file_message(NAME, 10))
    assert back[0].tobytes() == b"x" * 10


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "tensor-t-",
        "t-" + "0" * 32,
        "tensor-" + "0" * 32,
        "tensor--" + "0" * 31,
        "tensor-t-" + "0" * 31,
        "tensor-t" + "0" * 33,
        "tensor-t-" + "g" * 32,
        "tensor-../t-" + "0" * 32,
        "tensor-T-" + "0" * 32,
        f"../{NAME}",
        f"/tmp/{NAME}",
        f"{NAME}\0",
        f"{NAME}\n",
        "tensor-t-é" + "0" * 31,
    ],
)
def test_names_of_another_form_are_refused(name: str, store: TensorStore, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"x" * 10)
    with pytest.raises(TransportError):
        Decoder(list[Any], store).decode(file_message(name, 10))
    assert names(tmp_path) == [NAME]


@pytest.mark.parametrize("nbytes", [0, 9, 11, 2**40, 2**63, 2**64 - 1])
def test_the_size_must_be_exact(nbytes: int, store: TensorStore, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"x" * 10)
    with pytest.raises(TransportError):
        Decoder(list[Any], store).decode(file_message(NAME, nbytes))


def test_only_regular_files_are_opened(store: TensorStore, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"x" * 10)
    (tmp_path / NAME).symlink_to(target)
    with pytest.raises(TransportError):
        Decoder(list[Any], store).decode(file_message(NAME, 10))
    assert target.read_bytes() == b"x" * 10
    os.mkfifo(tmp_path / ("tensor-t-" + "1" * 32))
    with pytest.raises(TransportError, match="regular"):
        Decoder(list[Any], store).decode(file_message("tensor-t-" + "1" * 32, 10))


def test_a_file_of_another_user_is_refused(
    store: TensorStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / NAME).write_bytes(b"x" * 10)
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    with pytest.raises(TransportError, match="belongs to user"):
        Decoder(list[Any], store).decode(file_message(NAME, 10))


def test_what_no_file_takes_goes_through_the_socket(tmp_path: Path) -> None:
    """A full file system must not lose a message."""
    store = TensorStore(tmp_path / "gone", prefix="t", min_bytes=1)
    array = np.arange(LARGE, dtype=np.float64)
    (received,) = Decoder(list[Any], store).decode(Encoder(store).encode([array]))
    assert np.array_equal(received, array)


def test_a_file_that_can_not_be_written_whole_is_removed(
    store: TensorStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: memoryview) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    (received,) = Decoder(list[Any], store).decode(Encoder(store).encode([np.ones(LARGE)]))
    assert len(received) == LARGE
    assert names(tmp_path) == []


@pytest.mark.parametrize("prefix", ["", "a/b", "..", "A", "a.b", "x" * 65])
def test_prefixes_that_could_leave_the_directory(prefix: str, tmp_path: Path) -> None:
    with pytest.raises(TransportError):
        TensorStore(tmp_path, prefix=prefix)


def test_nothing_of_torch_is_loaded_before_a_tensor_is_met() -> None:
    code = (
        "import sys, numpy; from typing import Any\n"
        "import framework.transport.messages, framework.transport.sockets\n"
        "from framework.transport.codec import Encoder, Decoder\n"
        "Decoder(Any).decode(Encoder().encode([numpy.ones(100), numpy.ones(1)]))\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
