"""The source `hub`, with a replaced download function: no network."""

from __future__ import annotations

import fnmatch
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import errors

from builtin_plugins.model_sources.directory import DirectorySource
from builtin_plugins.model_sources.hub import HubSource
from hookspecs.errors import ModelNotFoundError


@pytest.fixture
def calls(monkeypatch, checkpoint):
    """The arguments of each download; every download gives one checkpoint."""
    seen = []

    def download(name, **arguments):
        seen.append((name, arguments))
        return str(checkpoint())

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return seen


def test_a_download_becomes_a_model(make_context, calls):
    reported = []
    context = make_context(progress=lambda *report: reported.append(report))
    model = HubSource(context).resolve("org/name", "v1")
    assert model.name == "org/name" and Path(model.path, "config.json").is_file()
    assert reported == [("downloading org/name", 0.0), ("downloading org/name", 1.0)]
    [(name, arguments)] = calls
    assert (name, arguments["revision"]) == ("org/name", "v1")


@pytest.mark.parametrize("trust", [True, False])
def test_which_files_are_downloaded(make_context, calls, trust):
    HubSource(make_context(trust_remote_code=trust)).resolve("org/name", None)
    arguments = calls[0][1]

    def wanted(file):
        def fits(patterns):
            return any(fnmatch.fnmatch(file, pattern) for pattern in patterns)

        return fits(arguments["allow_patterns"]) and not fits(arguments["ignore_patterns"])

    assert all(
        map(
            wanted,
            (
                "config.json",
                "model-00001-of-00002.safetensors",
                "merges.txt",
                "chat_template.jinja",
                "tokenizer.model",
            ),
        )
    )
    unwanted = ("pytorch_model.bin", "original/params.json", "README.md")
    copies = ("consolidated.safetensors", "consolidated-00001-of-00002.safetensors")
    assert not any(map(wanted, (*unwanted, *copies)))
    assert wanted("modeling.py") is trust


def test_a_tokenizer_from_the_hub(make_context, calls, checkpoint):
    context = make_context(tokenizer="org/tokenizer")
    DirectorySource(context).resolve(str(checkpoint()), None)
    [(name, arguments)] = calls
    assert name == "org/tokenizer" and "*.safetensors" not in arguments["allow_patterns"]


_RESPONSE = SimpleNamespace(headers={}, request=None)


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (errors.GatedRepoError("x", response=_RESPONSE), "Accept its terms"),
        (errors.RepositoryNotFoundError("x", response=_RESPONSE), "Check the spelling"),
        (errors.RevisionNotFoundError("x", response=_RESPONSE), "Give an existing branch"),
        (errors.LocalEntryNotFoundError("x"), "Check the network"),
        (errors.OfflineModeIsEnabled("x"), "HF_HUB_OFFLINE"),
        (ConnectionError("x"), "Check the network"),
    ],
)
def test_errors_say_what_to_do(make_context, monkeypatch, error, hint):
    def fail(name, **arguments):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ModelNotFoundError, match=hint) as caught:
        HubSource(make_context()).resolve("org/name", "v1")
    assert "'org/name'" in str(caught.value) and "'v1'" in str(caught.value)
    assert caught.value.__cause__ is error


def test_which_names_match(make_context, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "local" / "model").mkdir(parents=True)
    matches = HubSource(make_context()).matches
    assert matches("org/name-1.5B")
    assert not any(
        map(matches, ("local/model", "name", "a/b/c", "./a", "../a", "/a", "package:x", "a/b.gguf"))
    )
