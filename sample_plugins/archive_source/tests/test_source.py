"""Names, the cache and what is found in it, without an engine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from filelock import FileLock
from hookspecs.errors import ModelNotFoundError, UnsupportedModelError

from archive_source.options import ArchiveOptions
from archive_source.plugin import plugin
from archive_source.source import ArchiveSource

MakeSource = Callable[..., ArchiveSource]


def packed(directory: Path, kind: str = "tar") -> str:
    """The model's name, of an archive beside the directory."""
    return f"archive:{shutil.make_archive(str(directory), kind, directory)}"


def test_it_takes_its_prefix_and_nothing_else(make_source: MakeSource) -> None:
    source = make_source()
    assert source.matches("archive:/x.tar")
    assert not any(source.matches(name) for name in ("/x.tar", "org/name", "package:x", ""))


def test_it_is_unpacked_once(make_source: MakeSource, checkpoint: Path) -> None:
    name, seen = packed(checkpoint), []
    source = make_source(progress=lambda what, fraction: seen.append(what))
    first = source.resolve(name, None)
    count = len(seen)
    assert count
    assert source.resolve(name, None) == first
    assert len(seen) == count
    assert first.info.eos_token_ids == (2,)
    assert first.info.has_tokenizer
    assert first.tokenizer_path == first.path


def test_one_that_was_replaced_is_unpacked_again(make_source: MakeSource, checkpoint: Path) -> None:
    name, source = packed(checkpoint), make_source()
    paths = {source.resolve(name, None).path}
    os.utime(name.removeprefix("archive:"), ns=(0, 0))
    paths.add(source.resolve(name, None).path)
    assert len(paths) == 2


def test_what_was_refused_leaves_nothing(
    make_source: MakeSource, checkpoint: Path, tmp_path: Path
) -> None:
    name = packed(checkpoint)
    with pytest.raises(UnsupportedModelError):
        make_source(max_bytes=100).resolve(name, None)
    assert [path for path in (tmp_path / "cache").iterdir() if path.is_dir()] == []
    assert make_source().resolve(name, None).path


def test_parts_of_a_process_that_was_killed_are_removed(
    make_source: MakeSource, checkpoint: Path, tmp_path: Path
) -> None:
    name, source = packed(checkpoint), make_source()
    path = source.resolve(name, None).path
    assert path is not None
    part = Path(f"{path}.tmp-x")
    part.mkdir()
    shutil.rmtree(path)
    assert source.resolve(name, None).path == path
    assert not part.exists()


PROCESS = """
import sys
from hookspecs import EngineConfig
from hookspecs.contracts.model import ModelSourceContext
from archive_source.options import ArchiveOptions
from archive_source.source import ArchiveSource

def progress(what, fraction):
    print(what, flush=True)

options = ArchiveOptions(cache_dir=sys.argv[2])
context = ModelSourceContext(config=EngineConfig(), options=options, progress=progress)
ArchiveSource(context).resolve(sys.argv[1], None)
"""


def test_two_processes_unpack_it_once(
    make_source: MakeSource, checkpoint: Path, tmp_path: Path
) -> None:
    name, cache = packed(checkpoint), tmp_path / "cache"
    path = make_source().resolve(name, None).path
    assert path is not None
    shutil.rmtree(path)  # but its lock is known now
    with FileLock(f"{path}.lock"):
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", PROCESS, name, str(cache)], stdout=subprocess.PIPE, text=True
            )
            for _ in range(2)
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("waiting for another process")
    said = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted(bool(lines) for lines in said) == [False, True]
    assert Path(path, "config.json").is_file()


def test_one_that_changes_meanwhile_is_refused(make_source: MakeSource, checkpoint: Path) -> None:
    name = packed(checkpoint)

    def touch(what: str, fraction: float) -> None:
        os.utime(name.removeprefix("archive:"), ns=(0, 0))

    with pytest.raises(ModelNotFoundError, match="changed while it was unpacked"):
        make_source(progress=touch).resolve(name, None)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("archive:", "must end in"),
        ("archive:x.rar", r"must end in .tar, .tar.gz, .zip"),
        ("archive:x.TAR", "Rename the file"),
    ],
)
def test_names_of_other_formats_are_refused(make_source: MakeSource, name: str, said: str) -> None:
    with pytest.raises(UnsupportedModelError, match=said):
        make_source().resolve(name, None)


def test_files_that_are_not_there(make_source: MakeSource, tmp_path: Path) -> None:
    (tmp_path / "d.tar").mkdir()
    long = "x" * 5000
    for name, said in (
        (f"archive:{tmp_path}/missing.zip", "does not exist. Check the spelling"),
        (f"archive:{tmp_path}/d.tar", "is a directory.*given without archive:"),
        (f"archive:/{long}.tar", "can not be used"),
        ("archive:a\0b.tar", "can not be used"),
        ("archive:~nobody-at-all/x.tar", "can not be used"),
    ):
        with pytest.raises(ModelNotFoundError, match=said):
            make_source().resolve(name, None)


def test_a_revision_is_refused(make_source: MakeSource, checkpoint: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"Leave model.revision out"):
        make_source().resolve(packed(checkpoint), "main")


def test_a_cache_that_can_not_be_made(
    make_source: MakeSource, checkpoint: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for cache in (f"{tmp_path}/file/cache", "~nobody-at-all/cache"):
        with pytest.raises(ModelNotFoundError, match=r"plugins.options.archive.cache_dir"):
            make_source(cache_dir=cache).resolve(packed(checkpoint), None)


def test_it_holds_one_model(make_source: MakeSource, checkpoint: Path, tmp_path: Path) -> None:
    both = tmp_path / "both"
    for folder in ("one", "two"):
        shutil.copytree(checkpoint, both / folder)
    (both / "__MACOSX").mkdir()
    with pytest.raises(ModelNotFoundError, match="folders with one are: 'one', 'two'"):
        make_source().resolve(packed(both), None)
    shutil.rmtree(both / "two")
    found = make_source().resolve(packed(both, "zip"), None)
    assert found.path is not None
    assert Path(found.path).name == "one"
    shutil.rmtree(both / "one")
    with pytest.raises(ModelNotFoundError, match="folders with one are: none"):
        make_source().resolve(packed(both, "gztar"), None)


def test_a_model_that_is_wrong_is_refused(make_source: MakeSource, checkpoint: Path) -> None:
    path = checkpoint / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "vocab_size": 0}))
    with pytest.raises(UnsupportedModelError, match="vocab_size"):
        make_source().resolve(packed(checkpoint), None)


@pytest.mark.parametrize("options", [{"max_bytes": 0}, {"cache_dir": ""}, {"cache": "x"}])
def test_options_that_are_wrong_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(options, ArchiveOptions)


def test_the_plugin_offers_the_source() -> None:
    (provider,) = plugin.register_model_sources()
    assert provider.name == plugin.PLUGIN.name == "archive"
