"""Arrays of more than a mebibyte between processes: files that nobody finds afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import framework
from framework import SamplingParams
from framework.launcher import Engine
from framework.transport.tensor_ipc import TensorStore
from hookspecs.errors import EngineDeadError
from hookspecs.types.commands import UpdateWeights
from tests.processes.launches import drill_config, freeze, long_params
from tests.processes.plugins_for_tests import drill

LARGE = np.ones(1 << 21, np.int8)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that this process wrote."""
    names: list[str] = []
    put = TensorStore.put

    def noted(store: TensorStore, data: memoryview) -> str:
        names.append(put(store, data))
        return names[-1]

    monkeypatch.setattr(TensorStore, "put", noted)
    return names


def _directory(engine: Any) -> Path:
    path: Path = engine._host.runtime_dir.tensors
    return path


def test_weights_travel_and_leave_no_file(written: list[str]) -> None:
    settings = drill_config()

    async def main() -> list[list[int]]:
        async with framework.launch_async(settings, plugins=[drill]) as engine:
            found = []
            for tensors in (
                {"a": np.array([4]), "b": np.array([3])},
                {"a": LARGE[:7]},
                {"a": LARGE, "b": torch.full((1 << 20,), -2, dtype=torch.int16), "c": LARGE[:7]},
            ):
                await engine.run_command(UpdateWeights(tensors=tensors))
                outputs = engine.generate([1, 2], long_params(4), request_id="a")
                found.append([t async for output in outputs for t in output.outputs[0].token_ids])
            assert not list(_directory(engine).iterdir())
            return found

    first, second, third = asyncio.run(main())
    assert first == second == third
    assert len(written) == 2


def test_a_core_that_is_killed_before_it_reads_leaves_nothing(written: list[str]) -> None:
    async def main() -> None:
        async with framework.launch_async(drill_config(), plugins=[drill]) as engine:
            pid = engine.engine_pids()[0]
            freeze(pid)
            call = asyncio.create_task(engine.run_command(UpdateWeights(tensors={"a": LARGE})))
            await asyncio.sleep(0)
            assert [path.name for path in _directory(engine).iterdir()] == written
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(EngineDeadError):
                await call

    asyncio.run(main())
    assert len(written) == 1


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray[Any, Any]]:
    """A model with large embeddings, and those of a prompt."""
    torch.manual_seed(5)
    settings = AutoConfig.for_model(
        "llama",
        vocab_size=64,
        hidden_size=1024,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=8,
        num_key_value_heads=1,
        max_position_embeddings=512,
        eos_token_id=None,
    )
    loaded = AutoModelForCausalLM.from_config(settings).float()
    folder = tmp_path_factory.mktemp("model")
    loaded.save_pretrained(folder)
    with torch.inference_mode():
        ids = torch.arange(300) % 64
        return folder, loaded.get_input_embeddings()(ids).numpy()


def test_embeddings_give_the_same_tokens_in_a_process_of_its_own(
    model: tuple[Path, np.ndarray[Any, Any]], written: list[str]
) -> None:
    folder, embeds = model
    assert embeds.nbytes > 1 << 20
    params = SamplingParams(max_tokens=6, temperature=0, detokenize=False)

    def launch(process: str) -> Engine:
        return framework.launch(
            {
                "model": {"name": str(folder), "tokenizer": "none", "dtype": "float32"},
                "cache": {"num_blocks": 64},
                "executor": {"threads": 1},
                "stats": {"loggers": []},
                "engine": {"process": process},
            }
        )

    found = []
    for process in ("in_process", "separate"):
        with launch(process) as engine:
            (output,) = engine.generate([{"prompt_embeds": embeds}], params)
            found.append(output.outputs[0].token_ids)
    assert found[0] == found[1]
    assert len(found[0]) == 6
    assert len(written) == 1
