"""The installed model source in an engine with the worker `cpu` and a tiny random model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import framework
import pytest
from framework import SamplingParams
from hookspecs.errors import PluginConfigError, UnsupportedModelError

PARAMS = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)


def settings(name: str, cache: Path, **options: Any) -> dict[str, Any]:
    return {
        "model": {"name": name, "dtype": "float32"},
        "executor": {"worker": "cpu", "threads": 1},
        "cache": {"num_blocks": 16},
        "stats": {"loggers": []},
        "plugins": {"options": {"archive": {"cache_dir": str(cache), **options}}},
    }


@pytest.mark.parametrize("kind", ["tar", "gztar", "zip"])
def test_a_model_in_an_archive_is_the_model_in_its_directory(
    tiny_model: Path, tmp_path: Path, kind: str
) -> None:
    # `tiny` is the single folder of the archive.
    file = shutil.make_archive(
        str(tmp_path / "m"), kind, tiny_model.parent, tiny_model.name, verbose=False
    )
    answers, models = [], []
    for name in (str(tiny_model), f"archive:{file}"):
        with framework.launch(settings(name, tmp_path / "cache")) as engine:
            (output,) = engine.generate(["hello"], PARAMS)
            answers.append((output.outputs[0].token_ids, output.outputs[0].text))
            models.append(engine.model)
    assert answers[0] == answers[1]
    assert len(answers[0][0]) == 6
    directory, archive = models
    assert archive.info == directory.info
    assert archive.name == f"archive:{file}"
    assert archive.path is not None
    assert Path(archive.path).is_relative_to(tmp_path / "cache")
    assert archive.path == archive.tokenizer_path


def test_errors_reach_whoever_starts(tiny_model: Path, tmp_path: Path) -> None:
    file = shutil.make_archive(str(tmp_path / "m"), "tar", tiny_model)
    with pytest.raises(UnsupportedModelError, match=r"raise plugins.options.archive.max_bytes"):
        framework.launch(settings(f"archive:{file}", tmp_path / "cache", max_bytes=1000))
    with pytest.raises(PluginConfigError, match="max_bytes"):
        framework.launch(settings(f"archive:{file}", tmp_path / "cache", max_bytes=0))


def test_the_source_can_be_named(tmp_path: Path) -> None:
    wanted = settings(str(tmp_path / "m.rar"), tmp_path / "cache")
    wanted["model"]["source"] = "archive"
    with pytest.raises(UnsupportedModelError, match=r"must end in .tar, .tar.gz, .zip"):
        framework.launch(wanted)
