"""Weights that are replaced in place: the tokens are those of a model loaded from them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from builtin_plugins.model_transformers.loader import TransformersLoader
from hookspecs.config import Dtype
from hookspecs.contracts.model import ResolvedModel
from hookspecs.errors import CommandError, InvalidRequestError
from tests.worker_cpu.driver import Driver, Request, random_prompt
from tests.worker_cpu.families import FAMILIES, Reference, resolved, save_model

Checkpoint = Callable[[str], ResolvedModel]
References = Callable[[str], Reference]
PROMPTS = [random_prompt(length) for length in (17, 6)]
MIXTURES: dict[str, dict[str, Any]] = {
    "mixtral": {"model_type": "mixtral", "num_local_experts": 3, "num_experts_per_tok": 2},
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        "head_dim": 8,
        "num_experts": 3,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
    },
}
EMBEDDING = "model.embed_tokens.weight"
QUERY = "model.layers.0.self_attn.q_proj.weight"


def _tokens(driver: Driver) -> list[list[int]]:
    requests = [Request(prompt, 8) for prompt in PROMPTS]
    driver.run(*requests, chunk=5)
    return [request.output for request in requests]


def _expected(model: ResolvedModel) -> list[list[int]]:
    reference = Reference(model)
    return [reference.greedy(prompt, 8) for prompt in PROMPTS]


def _other(directory: Path, family: str = "llama") -> ResolvedModel:
    """A model like that of `checkpoint`, with other weights."""
    return save_model(directory, seed=1, **{**FAMILIES, **MIXTURES}[family])


def _weights(model: ResolvedModel) -> dict[str, torch.Tensor]:
    return load_file(Path(str(model.path), "model.safetensors"))


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3", "gpt2", "gpt_neox", "opt"])
def test_equals_a_fresh_model(family: str, tmp_path: Path, checkpoint: Checkpoint) -> None:
    driver = Driver(checkpoint(family))
    before = _tokens(driver)
    other = _other(tmp_path, family)
    count = driver.worker.update_weights(other.path, None)
    assert count == len(_weights(other))
    assert _tokens(driver) == _expected(other) != before


@pytest.mark.parametrize("family", sorted(MIXTURES))
def test_experts_that_loading_merges(family: str, tmp_path: Path) -> None:
    driver = Driver(save_model(tmp_path / "first", **MIXTURES[family]))
    other = _other(tmp_path / "second", family)
    arrays = {name: tensor.numpy() for name, tensor in _weights(other).items()}
    shuffled = {name: arrays[name] for name in sorted(arrays, key=lambda name: name[::-1])}
    count = driver.worker.update_weights(None, shuffled)
    assert count < len(arrays)
    assert _tokens(driver) == _expected(other)


def test_arrays_as_they_come(tmp_path: Path, checkpoint: Checkpoint) -> None:
    """Read-only, transposed, or backwards in memory."""
    driver = Driver(checkpoint("llama"))
    arrays = {name: tensor.numpy() for name, tensor in _weights(_other(tmp_path)).items()}
    for index, (name, array) in enumerate(arrays.items()):
        if index % 3 == 0:
            array.setflags(write=False)
        elif index % 3 == 1:
            arrays[name] = np.asfortranarray(array)
        else:
            arrays[name] = array[::-1].copy()[::-1]
    driver.worker.update_weights(None, arrays)
    assert _tokens(driver) == _expected(resolved(tmp_path))


@pytest.mark.parametrize("kind", ["file", "shards", "no_index"])
def test_files(kind: str, tmp_path: Path, checkpoint: Checkpoint) -> None:
    driver = Driver(checkpoint("llama"))
    other = _other(tmp_path / "other")
    path = tmp_path / "shards"
    module = AutoModelForCausalLM.from_pretrained(other.path)
    module.save_pretrained(path, max_shard_size="20KB")
    index = path / "model.safetensors.index.json"
    assert index.is_file()
    if kind == "file":
        path = tmp_path / "any name.safetensors"
        save_file(_weights(other), path)
    elif kind == "shards":
        (path / "stray.safetensors").write_bytes(b"not in the index")
    else:
        index.unlink()
    assert driver.worker.update_weights(str(path), None) == 20
    assert _tokens(driver) == _expected(other)


@pytest.mark.parametrize("name", [EMBEDDING, "lm_head.weight"])
def test_tied_weights_by_either_name(name: str, tmp_path: Path, checkpoint: Checkpoint) -> None:
    driver = Driver(checkpoint("llama"))
    weights = _weights(_other(tmp_path))
    assert "lm_head.weight" not in weights
    weights[name] = weights.pop(EMBEDDING)
    assert driver.worker.update_weights(None, weights) == 20
    assert _tokens(driver) == _expected(resolved(tmp_path))


def test_tied_weights_by_both_names(tmp_path: Path, checkpoint: Checkpoint) -> None:
    driver = Driver(checkpoint("llama"))
    before = _tokens(driver)
    weights = _weights(_other(tmp_path))
    weights["lm_head.weight"] = weights[EMBEDDING] + 1
    with pytest.raises(InvalidRequestError, match="are tied in this model"):
        driver.worker.update_weights(None, weights)
    assert _tokens(driver) == before
    weights["lm_head.weight"] = weights[EMBEDDING].clone()
    assert driver.worker.update_weights(None, weights) == 20
    assert _tokens(driver) == _expected(resolved(tmp_path))


def test_untied_weights_are_two(tmp_path: Path, checkpoint: Checkpoint) -> None:
    driver = Driver(checkpoint("llama_mqa"))
    weights = _weights(_other(tmp_path, "llama_mqa"))
    pair = {name: weights.pop(name) for name in (EMBEDDING, "lm_head.weight")}
    assert driver.worker.update_weights(None, pair) == 2
    driver.worker.update_weights(None, weights)
    assert _tokens(driver) == _expected(resolved(tmp_path))


def test_a_subset(tmp_path: Path, checkpoint: Checkpoint) -> None:
    driver = Driver(checkpoint("llama"))
    weights = _weights(checkpoint("llama"))
    part = {
        name: tensor
        for name, tensor in _weights(_other(tmp_path)).items()
        if name.startswith("model.layers.1.")
    }
    assert driver.worker.update_weights(None, part) == len(part) == 9
    save_file({**weights, **part}, tmp_path / "model.safetensors", {"format": "pt"})
    assert _tokens(driver) == _expected(resolved(tmp_path))


def test_names_without_the_prefix_of_the_base_model(tmp_path: Path, checkpoint: Checkpoint) -> None:
    """As in the checkpoints of GPT-2's authors."""
    driver = Driver(checkpoint("gpt2"))
    other = _other(tmp_path, "gpt2")
    weights = {name.removeprefix("transformer."): t for name, t in _weights(other).items()}
    assert "h.0.attn.c_attn.weight" in weights
    count = len(weights)
    assert driver.worker.update_weights(None, weights) == count
    assert _tokens(driver) == _expected(other)


def test_what_loading_ignores_is_ignored(tmp_path: Path, checkpoint: Checkpoint) -> None:
    """A model takes the files that it was loaded from."""
    weights = _weights(_other(tmp_path))
    weights["vision.tower.weight"] = torch.ones(3)
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    driver = Driver(resolved(tmp_path))
    assert driver.worker.update_weights(str(tmp_path), None) == 20
    with pytest.raises(InvalidRequestError, match=r"no weight 'vision\.tower\.weight'"):
        Driver(checkpoint("llama")).worker.update_weights(str(tmp_path), None)


def test_parameters_stay_and_files_too(tmp_path: Path, checkpoint: Checkpoint) -> None:
    """The weights that were loaded may be mapped from their file."""
    parameters: list[torch.nn.Parameter] = []

    class Loader(TransformersLoader):
        def load(self, *args: Any, **kwargs: Any) -> Any:
            model = super().load(*args, **kwargs)
            (module,) = (one for one in vars(model).values() if isinstance(one, torch.nn.Module))
            parameters.extend(module.parameters())
            return model

    first = save_model(tmp_path / "first", **FAMILIES["llama"])
    other = _other(tmp_path / "other")
    files = [Path(str(model.path), "model.safetensors") for model in (first, other)]
    contents = [file.read_bytes() for file in files]
    driver = Driver(first, make_loader=Loader)
    before = [(parameter.data_ptr(), parameter.sum().item()) for parameter in parameters]
    driver.worker.update_weights(None, _weights(other))
    after = [(parameter.data_ptr(), parameter.sum().item()) for parameter in parameters]
    assert [place for place, _ in after] == [place for place, _ in before]
    assert all(now != then for (_, now), (_, then) in zip(after, before, strict=True))
    assert [file.read_bytes() for file in files] == contents
    given = _weights(other)
    driver.worker.update_weights(None, given)
    given[EMBEDDING].zero_()
    assert _tokens(driver) == _expected(other), "copied, not kept"


@pytest.mark.parametrize("given", [torch.bfloat16, torch.float16, torch.float64])
def test_types_are_converted(given: torch.dtype, tmp_path: Path, checkpoint: Checkpoint) -> None:
    driver = Driver(checkpoint("llama"))
    weights = {name: tensor.to(given) for name, tensor in _weights(_other(tmp_path)).items()}
    driver.worker.update_weights(None, weights)
    rounded = {name: tensor.float() for name, tensor in weights.items()}
    save_file(rounded, tmp_path / "model.safetensors", {"format": "pt"})
    assert _tokens(driver) == _expected(resolved(tmp_path))


def test_a_model_of_a_shorter_type(tmp_path: Path, checkpoint: Checkpoint) -> None:
    driver = Driver(checkpoint("llama"), dtype=Dtype.BFLOAT16)
    driver.worker.update_weights(str(_other(tmp_path).path), None)
    assert _tokens(driver) == _tokens(Driver(resolved(tmp_path), dtype=Dtype.BFLOAT16))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"model.layers.1.mlp.upp_proj.weight": torch.zeros(48, 32)},
            "LlamaForCausalLM has no weight 'model.layers.1.mlp.upp_proj.weight'; the nearest "
            "name is 'model.layers.1.mlp.up_proj.weight'",
        ),
        ({"model.layers.2.mlp.up_proj.weight": torch.zeros(48, 32)}, "no weight"),
        ({QUERY: torch.zeros(32, 31)}, rf"'{QUERY}' has shape \(32, 31\); needed is \(32, 32\)"),
        ({"lm_head.weight": torch.zeros(199)}, r"shape \(199,\); needed is \(199, 32\)"),
        ({QUERY: torch.zeros(32, 32, dtype=torch.int8)}, "dtype int8; needed is a floating"),
        ({QUERY: np.zeros((32, 32), np.complex64)}, "dtype complex64"),
        ({QUERY: np.zeros((32, 32), "U1")}, f"tensors: '{QUERY}'"),
        ({QUERY: np.zeros((32, 32), ">f4")}, f"tensors: '{QUERY}'.*byte order"),
        ({QUERY: [[0.0]]}, f"tensors: '{QUERY}' is a list, no numpy array or torch tensor"),
    ],
)
def test_nothing_is_replaced_when_one_is_wrong(
    wrong: dict[str, Any], message: str, tmp_path: Path, checkpoint: Checkpoint
) -> None:
    driver = Driver(checkpoint("llama"))
    before = _tokens(driver)
    with pytest.raises(InvalidRequestError, match=message):
        driver.worker.update_weights(None, {**_weights(_other(tmp_path)), **wrong})
    assert _tokens(driver) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("model.layers.0.mlp.experts.1.up_proj.weight"), "up_proj.weight' is miss"),
        (
            lambda w: w.update({"model.layers.0.mlp.experts.3.up_proj.weight": torch.ones(16, 32)}),
            "no weight 'model.layers.0.mlp.experts.3.up_proj.weight'; the nearest name is",
        ),
        (
            lambda w: w.update({"model.layers.0.mlp.experts.2.up_proj.weight": torch.ones(16, 31)}),
            r"experts.2.up_proj.weight' has shape \(16, 31\); needed is \(16, 32\)",
        ),
    ],
)
def test_experts_that_do_not_fit(
    change: Callable[[dict[str, torch.Tensor]], Any], message: str, tmp_path: Path
) -> None:
    model = save_model(tmp_path, **MIXTURES["qwen3_moe"])
    driver = Driver(model)
    before = _tokens(driver)
    weights = {name: tensor * 2 for name, tensor in _weights(model).items()}
    change(weights)
    with pytest.raises(InvalidRequestError, match=message):
        driver.worker.update_weights(None, weights)
    assert _tokens(driver) == before


def _index(directory: Path, file: str) -> Path:
    index = {"weight_map": {EMBEDDING: file}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: d / "missing", "does not exist"),
        (lambda d: d, "has no .safetensors files"),
        (lambda d: _write(d / "model.bin", b"\x80\x04."), "from safetensors files only"),
        (lambda d: _write(d / "a.safetensors", b"broken"), "can not be read"),
        (lambda d: _write(d / "model.safetensors.index.json", b"{]").parent, "is no index"),
        (lambda d: _index(d, "../secret.safetensors"), "names '../secret.safetensors'"),
        (lambda d: _index(d, "model.bin"), "names 'model.bin'"),
        (lambda d: _index(d, "lost.safetensors"), "can not be read: .*lost"),
    ],
)
def test_paths_that_are_refused(
    make: Callable[[Path], Path], message: str, tmp_path: Path, checkpoint: Checkpoint
) -> None:
    driver = Driver(checkpoint("llama"))
    with pytest.raises(InvalidRequestError, match=message) as caught:
        driver.worker.update_weights(str(make(tmp_path)), None)
    assert caught.value.param == "path"


def _write(file: Path, content: bytes) -> Path:
    file.write_bytes(content)
    return file


@pytest.mark.parametrize("whole", [False, True])
def test_pipes_are_not_waited_for(whole: bool, tmp_path: Path, checkpoint: Checkpoint) -> None:
    os.mkfifo(tmp_path / "a.safetensors")
    path = tmp_path if whole else tmp_path / "a.safetensors"
    with pytest.raises(InvalidRequestError, match=r"a\.safetensors' is no regular file"):
        Driver(checkpoint("llama")).worker.update_weights(str(path), None)


def test_a_name_in_two_files(tmp_path: Path, checkpoint: Checkpoint) -> None:
    for name in ("a", "b"):
        save_file({QUERY: torch.zeros(32, 32)}, tmp_path / f"{name}.safetensors")
    with pytest.raises(InvalidRequestError, match="in more than one file"):
        Driver(checkpoint("llama")).worker.update_weights(str(tmp_path), None)


def test_exactly_one_of_path_and_tensors(checkpoint: Checkpoint) -> None:
    worker = Driver(checkpoint("llama")).worker
    for path, tensors in ((None, None), ("here", {QUERY: torch.zeros(32, 32)})):
        with pytest.raises(InvalidRequestError, match="exactly one"):
            worker.update_weights(path, tensors)
    with pytest.raises(InvalidRequestError, match="no tensors"):
        worker.update_weights(None, {})


def test_weights_that_sleep(tmp_path: Path, checkpoint: Checkpoint) -> None:
    """They are replaced before the KV cache is back."""
    driver = Driver(checkpoint("llama"))
    other = _other(tmp_path)
    driver.worker.sleep(2)
    with pytest.raises(CommandError, match="asleep"):
        driver.worker.update_weights(other.path, None)
    driver.worker.wake_up(["weights"])
    driver.worker.update_weights(other.path, None)
    driver.worker.wake_up(["kv_cache"])
    assert _tokens(driver) == _expected(other)
