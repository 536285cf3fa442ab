"""The source `directory`, and what it reads from config.json."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from builtin_plugins.model_sources.directory import DirectorySource
from framework.sdk.model_directory.json_file import read_object
from hookspecs.errors import FrameworkError, ModelNotFoundError, UnsupportedModelError


def resolve(make_context, path, **model):
    return DirectorySource(make_context(**model)).resolve(str(path), None)


def test_facts_of_a_plain_checkpoint(make_context, checkpoint):
    path = checkpoint(torch_dtype="bfloat16", bos_token_id=3, eos_token_id=7)
    model = resolve(make_context, path)
    assert (model.name, model.path, model.tokenizer_path) == (str(path),) * 3
    info = model.info
    assert info.architecture == "LlamaForCausalLM"
    assert (info.vocab_size, info.max_model_len, info.hidden_size) == (100, 64, 8)
    assert (info.bos_token_id, info.eos_token_ids, info.dtype) == (3, (7,), "bfloat16")
    assert info.has_tokenizer and info.generation_defaults == {}


def test_text_config_is_read(make_context, checkpoint):
    text = {"model_type": "gemma3_text", "hidden_size": 32, "dtype": "bfloat16"}
    path = checkpoint(
        remove=("vocab_size", "max_position_embeddings", "hidden_size"),
        text_config=text,
        eos_token_id=[1, 106],
    )
    info = resolve(make_context, path).info
    assert (info.vocab_size, info.max_model_len, info.hidden_size) == (262208, 131072, 32)
    assert (info.eos_token_ids, info.dtype) == ((1, 106), "bfloat16")


def test_omitted_values_are_the_defaults_of_the_class(make_context, checkpoint):
    from transformers import Gemma3TextConfig

    path = checkpoint(
        remove=("vocab_size", "max_position_embeddings"),
        text_config={"model_type": "gemma3_text"},
    )
    info = resolve(make_context, path).info
    defaults = Gemma3TextConfig()
    assert info.vocab_size == defaults.vocab_size
    assert info.max_model_len == defaults.max_position_embeddings


def test_gpt2_names(make_context, checkpoint):
    path = checkpoint(
        remove=("max_position_embeddings", "hidden_size"), n_positions=1024, n_embd=768
    )
    info = resolve(make_context, path).info
    assert (info.max_model_len, info.hidden_size) == (1024, 768)


def test_generation_config_comes_first(make_context, checkpoint):
    path = checkpoint({"eos_token_id": [9, 8], "bos_token_id": 5}, eos_token_id=8)
    info = resolve(make_context, path).info
    assert (info.eos_token_ids, info.bos_token_id) == ((9, 8), 5)


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ({"do_sample": True}, {"temperature": 0.6, "top_k": 20}),
        ({}, {"temperature": 0.6, "top_k": 20}),
        ({"do_sample": None}, {"temperature": 0.6, "top_k": 20}),
        ({"do_sample": False}, {"temperature": 0.0}),
    ],
    ids=str,
)
def test_recommended_sampling(make_context, checkpoint, sample, expected):
    path = checkpoint(
        {
            **sample,
            "temperature": 0.6,
            "top_k": 20,
            "top_p": None,
            "repetition_penalty": 1.1,
            "max_new_tokens": 50,
        }
    )
    always = {"repetition_penalty": 1.1, "max_tokens": 50}
    assert resolve(make_context, path).info.generation_defaults == always | expected


def test_greedy_decoding_is_recommended_without_a_temperature(make_context, checkpoint):
    path = checkpoint({"do_sample": False})
    assert resolve(make_context, path).info.generation_defaults == {"temperature": 0.0}


def test_no_tokenizer(make_context, checkpoint):
    path = checkpoint()
    (path / "tokenizer.json").unlink()
    model = resolve(make_context, path)
    assert model.tokenizer_path is None and not model.info.has_tokenizer


def test_other_tokenizer(make_context, checkpoint, tmp_path):
    path = checkpoint()
    other = tmp_path / "other"
    other.mkdir()
    assert resolve(make_context, path, tokenizer=str(other)).tokenizer_path == str(other)
    assert resolve(make_context, path, tokenizer="none").tokenizer_path is None
    with pytest.raises(ModelNotFoundError, match=r"model\.tokenizer is './missing'"):
        resolve(make_context, path, tokenizer="./missing")


def test_missing_directory(make_context, tmp_path):
    with pytest.raises(ModelNotFoundError, match="there is no directory"):
        resolve(make_context, tmp_path / "missing")


def test_a_file_is_refused(make_context, tmp_path):
    path = tmp_path / "model.txt"
    path.write_text("")
    with pytest.raises(ModelNotFoundError, match="is a file"):
        resolve(make_context, path)


def test_missing_config(make_context, tmp_path):
    with pytest.raises(ModelNotFoundError, match=r"no config\.json"):
        resolve(make_context, tmp_path)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
@pytest.mark.parametrize(("text", "problem"), [('{"a": ', "not valid JSON"), ("[]", "JSON list")])
def test_broken_json(make_context, checkpoint, name, text, problem):
    path = checkpoint()
    (path / name).write_text(text)
    with pytest.raises(UnsupportedModelError, match=problem) as caught:
        resolve(make_context, path)
    assert name in str(caught.value)


_INDEX = "model.safetensors.index.json"


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", _INDEX])
def test_json_is_read_up_to_a_bound(make_context, checkpoint, name):
    path = checkpoint()
    with (path / name).open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(UnsupportedModelError, match="more than 67108864 bytes"):
        resolve(make_context, path)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", _INDEX])
def test_files_that_can_not_be_read(make_context, checkpoint, name, monkeypatch):
    path = checkpoint()
    (path / name).touch()
    opened = os.open

    def refuse(path, *arguments, **more):
        if Path(path).name == name:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **more)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ModelNotFoundError, match="can not be read") as caught:
        resolve(make_context, path)
    assert name in str(caught.value)


FILES = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "model.safetensors",
    _INDEX,
]


def _make(kind, name):
    """A thing in the current directory, since the address of a socket is short."""
    if kind == "a named pipe":
        os.mkfifo(name)
    elif kind == "a directory":
        os.mkdir(name)
    elif kind == "a device":
        os.symlink("/dev/zero", name)
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(name)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["a named pipe", "a directory", "a device", "a socket"])
def test_what_is_no_regular_file(make_context, checkpoint, tmp_path, monkeypatch, name, kind):
    path = checkpoint()
    (path / name).unlink(missing_ok=True)
    monkeypatch.chdir(path)
    _make(kind, name)
    with pytest.raises(UnsupportedModelError, match=f"{name}' is {kind}; .* regular files. Put"):
        resolve(make_context, path)
    other = tmp_path / "other"
    path.rename(other)
    with pytest.raises(UnsupportedModelError, match=f"{name}' is {kind}"):
        resolve(make_context, checkpoint(), tokenizer=str(other))


@pytest.mark.parametrize("kind", ["a named pipe", "a directory", "a device", "a socket"])
def test_json_is_read_of_regular_files(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    _make(kind, "some.json")
    with pytest.raises(UnsupportedModelError, match=f"some.json' is {kind}; "):
        read_object(tmp_path / "some.json")


def test_links_are_followed(make_context, checkpoint):
    path = checkpoint()
    (path / "config.json").rename(path / "blob")
    (path / "config.json").symlink_to("blob")
    (path / "added_tokens.json").symlink_to("nowhere")
    assert resolve(make_context, path).info.vocab_size == 100


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"vocab_size": 0}, "vocab_size = 0"),
        ({"vocab_size": "many"}, "vocab_size = 'many'"),
        ({"vocab_size": None}, "no vocab_size"),
        ({"architectures": []}, "architectures"),
        ({"eos_token_id": "x"}, "eos_token_id = 'x'"),
        ({"eos_token_id": 2**31}, r"eos_token_id = 2147483648; .* \(0 to 2147483647\)"),
        ({"vocab_size": 10**400}, "vocab_size = 10{59}; it must be"),
    ],
)
def test_unusable_values(make_context, checkpoint, change, problem):
    with pytest.raises(UnsupportedModelError, match=problem):
        resolve(make_context, checkpoint(**change))


def test_code_of_the_checkpoint_needs_trust(make_context, checkpoint):
    path = checkpoint(auto_map={"AutoModelForCausalLM": "modeling_x.X"})
    with pytest.raises(UnsupportedModelError, match="trust_remote_code"):
        resolve(make_context, path)
    assert resolve(make_context, path, trust_remote_code=True).info.vocab_size == 100


def test_pickle_weights_are_refused(make_context, checkpoint):
    path = checkpoint()
    (path / "model.safetensors").rename(path / "pytorch_model.bin")
    with pytest.raises(UnsupportedModelError, match=r"pytorch_model\.bin: pickle"):
        resolve(make_context, path)


def test_missing_weights(make_context, checkpoint):
    path = checkpoint()
    (path / "model.safetensors").unlink()
    with pytest.raises(ModelNotFoundError, match="no weights"):
        resolve(make_context, path)


def test_missing_shard(make_context, checkpoint):
    path = checkpoint()
    index = path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model.safetensors", "b": "second"}}))
    with pytest.raises(ModelNotFoundError, match="missing: second"):
        resolve(make_context, path)
    index.write_text("{}")
    with pytest.raises(UnsupportedModelError, match="not a valid index"):
        resolve(make_context, path)


def test_a_revision_is_refused(make_context, checkpoint):
    source = DirectorySource(make_context())
    with pytest.raises(FrameworkError, match="revision"):
        source.resolve(str(checkpoint()), "main")


def test_which_names_match(make_context, checkpoint):
    matches = DirectorySource(make_context()).matches
    assert matches(str(checkpoint())) and matches("./missing") and matches("~/missing")
    assert not any(map(matches, ("", "org/name", "package:x", "/a/b.gguf", str(Path("a") / "b"))))


@pytest.mark.parametrize("name", ["/etc/passwd", "../other/model.safetensors", "a/b.safetensors"])
def test_an_index_names_files_of_its_own_directory(make_context, checkpoint, name):
    path = checkpoint()
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(UnsupportedModelError, match="outside of its own directory"):
        resolve(make_context, path)
