"""The source `gguf`: the cache, and conversions that are killed or run at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from builtin_plugins.model_sources import gguf as source_module
from builtin_plugins.model_sources.gguf import GgufSource
from builtin_plugins.model_sources.gguf_cache import file_digest
from framework.sdk.cache import cache_directory
from hookspecs.errors import ModelNotFoundError, UnsupportedModelError

_RESOLVE = """
import os, signal, sys
from builtin_plugins.model_sources.gguf import GgufSource
from hookspecs.config import EngineConfig
from hookspecs.contracts.model import ModelSourceContext

def progress(what, fraction):
{body}

context = ModelSourceContext(config=EngineConfig(), progress=progress)
print("path", GgufSource(context).resolve(sys.argv[1], None).path, flush=True)
"""


def start(body: str, path: Path) -> subprocess.Popen[str]:
    """A process that resolves `path`; `body` is that of its progress callback."""
    script = _RESOLVE.format(body=f"    {body}")
    return subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def results(cache: Path) -> list[str]:
    """Names of the directories that the cache shows as models or leftovers."""
    return sorted(p.name for p in (cache / "gguf").iterdir() if p.is_dir() and p.name != "digests")


def resolve(make_context, path, **arguments):
    return GgufSource(make_context(**arguments)).resolve(str(path), None)


def test_a_second_start_converts_and_reads_nothing(make_context, tiny, tmp_path, cache):
    path = tiny.write(tmp_path / "tiny.gguf")
    reported = []
    first = resolve(make_context, path, progress=lambda *report: reported.append(report))
    assert first.name == str(path) and first.info.max_model_len == 64
    assert [what for what, fraction in reported if fraction == 1.0] == [
        "reading tiny.gguf",
        "converting tiny.gguf",
    ]
    reported.clear()
    assert resolve(make_context, path, progress=lambda *report: reported.append(report)) == first
    assert reported == []


def test_a_result_is_on_disk_with_its_name(make_context, tiny, tmp_path, cache, monkeypatch):
    """The content is forced to disk before the rename, the new name after it."""
    path = tiny.write(tmp_path / "tiny.gguf")
    done = []
    fsync, rename = os.fsync, os.rename

    def record_fsync(descriptor):
        done.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def record_rename(source, target):
        done.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "rename", record_rename)
    result = Path(resolve(make_context, path).path)
    at = done.index("rename")
    content = {result.stat().st_ino, *(file.stat().st_ino for file in result.iterdir())}
    assert set(done[:at]) == content
    assert done[at + 1 :] == [result.parent.stat().st_ino]


def test_the_content_is_the_key(make_context, tiny, tmp_path, cache):
    first = resolve(make_context, tiny.write(tmp_path / "a.gguf"))
    assert resolve(make_context, tiny.write(tmp_path / "b.gguf")).path == first.path
    tiny.metadata["llama.context_length"] = 32
    changed = resolve(make_context, tiny.write(tmp_path / "a.gguf"))
    assert changed.path != first.path and changed.info.max_model_len == 32


def test_the_version_of_the_converter_is_part_of_the_key(
    make_context, tiny, tmp_path, cache, monkeypatch
):
    path = tiny.write(tmp_path / "tiny.gguf")
    first = resolve(make_context, path)
    monkeypatch.setattr(source_module, "CONVERTER_VERSION", 1000)
    assert resolve(make_context, path).path != first.path


def test_a_damaged_digest_record_is_written_again(tiny, tmp_path):
    path, records = tiny.write(tmp_path / "tiny.gguf"), tmp_path / "digests"
    digest = file_digest(path, records, lambda what, fraction: None)
    [record] = records.iterdir()
    record.write_text("{")
    assert file_digest(path, records, lambda what, fraction: None) == digest
    assert digest in record.read_text()


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("FRAMEWORK_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_directory() == tmp_path / ".cache" / "engine-framework"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "engine-framework"
    monkeypatch.setenv("FRAMEWORK_CACHE_DIR", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own"


def test_a_failed_conversion_leaves_nothing(make_context, tiny, tmp_path, cache):
    del tiny.metadata["tokenizer.ggml.merges"]
    path = tiny.write(tmp_path / "tiny.gguf")
    with pytest.raises(UnsupportedModelError, match=r"tokenizer\.ggml\.merges"):
        resolve(make_context, path)
    assert results(cache) == []


def test_a_killed_conversion_is_not_seen(make_context, tiny, tmp_path, cache):
    path = tiny.write(tmp_path / "tiny.gguf")
    kill = "if what.startswith('converting') and fraction > 0: os.kill(os.getpid(), signal.SIGKILL)"
    process = start(kill, path)
    output, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL and "path" not in output
    [left] = results(cache)
    assert ".tmp-" in left

    model = resolve(make_context, path)
    assert results(cache) == [Path(model.path).name]
    assert Path(model.path, "model.safetensors").is_file()


def test_two_conversions_at_once(tiny, tmp_path, cache):
    path = tiny.write(tmp_path / "tiny.gguf")
    # The first stops in the middle until it is told to go on; the second then waits for it.
    first = start("if what.startswith('converting'): print(what, flush=True); input()", path)
    assert first.stdout.readline() == "converting tiny.gguf\n"
    second = start("print(what, flush=True)", path)
    assert second.stdout.readline() == "waiting for another process to convert tiny.gguf\n"
    first_output, _ = first.communicate("\n" * (len(tiny.tensors) + 1))
    second_output, _ = second.communicate()
    assert (first.returncode, second.returncode) == (0, 0)
    assert first_output.splitlines()[-1] == second_output.strip()
    assert len(results(cache)) == 1


def test_no_such_file(make_context, tmp_path):
    with pytest.raises(ModelNotFoundError, match="is missing"):
        resolve(make_context, tmp_path / "missing.gguf")
    (tmp_path / "directory.gguf").mkdir()
    with pytest.raises(ModelNotFoundError, match="is a directory"):
        resolve(make_context, tmp_path / "directory.gguf")


def test_a_cache_that_can_not_be_written(make_context, tiny, tmp_path, cache):
    cache.write_text("a file")
    with pytest.raises(ModelNotFoundError, match="set FRAMEWORK_CACHE_DIR"):
        resolve(make_context, tiny.write(tmp_path / "tiny.gguf"))


def test_which_names_match(make_context):
    matches = GgufSource(make_context()).matches
    assert matches("/a/b.gguf") and matches("b.gguf")
    assert not matches("org/name") and not matches("package:a.gguf")
