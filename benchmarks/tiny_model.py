"""Cost of a step around a model that computes next to nothing, and of sampling alone.

The engine runs in this process with the worker `cpu` and a model of one layer, so that what is
timed is scheduling, input preparation, sampling and bookkeeping. Sampling is timed with the
vocabulary of the real small model.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np

import framework
from benchmarks.measure import ratios, show, spread
from benchmarks.peer_core import ask_steps, peer_core
from benchmarks.peers import how_to_get
from benchmarks.tables import Table, add_arguments
from framework import SamplingParams
from framework.launcher import Engine

STEPS = 30
WARM_STEPS = 20
RUNNING = (1, 64, 256)
VOCAB: Final = 512
HIDDEN: Final = 64
MLP: Final = 128
HEADS: Final = 2
SAMPLED_ROWS = 64
SAMPLED_VOCAB = 49152
PARAMS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "temperature 0.8": {"temperature": 0.8},
    "top_p 0.9": {"temperature": 0.8, "top_p": 0.9},
    "top_k 50": {"temperature": 0.8, "top_k": 50},
    "top_k 50, top_p 0.9": {"temperature": 0.8, "top_k": 50, "top_p": 0.9},
}


def main(argv: Sequence[str] = ()) -> int:
    """Print both tables."""
    parser = ArgumentParser(prog="python -m benchmarks tiny-model", description=__doc__)
    add_arguments(parser, repeats=9)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        save_tiny_model(directory)
        _steps(directory, arguments)
    print(f"\nsampling {SAMPLED_ROWS} rows of {SAMPLED_VOCAB} logits, milliseconds")
    table = Table("sampling", ("parameters", "time"), arguments)
    for label, params in PARAMS.items():
        times = sampling_times(params, arguments.repeats)
        table.row((label, _show(times)), {"parameters": label, "seconds": times})
    return 0


def _steps(directory: Path, arguments: Namespace) -> None:
    repeats = arguments.repeats
    columns, told = ["running", "greedy", "sampled, top_p 0.9"], {}
    with ExitStack() as stack:
        peer = peer_core(arguments.peers, directory)
        if peer is None:
            print(how_to_get("vllm"))
        else:
            stack.enter_context(peer)
            told = {"vllm": str(peer.facts["version"])}
            columns += ["vllm, greedy", "ours / vllm"]
        print(f"engine step, milliseconds; each repeat is the mean of {STEPS} steps")
        table = Table("tiny-model", columns, arguments, peers=told)
        for running in RUNNING:
            times = []
            for params in (PARAMS["greedy"], PARAMS["top_p 0.9"]):
                with launch_tiny(directory, running) as engine:
                    times.append(step_times(engine, running, params, repeats))
            cells = [str(running), *map(_show, times)]
            theirs: list[float] = []
            if peer is not None:
                asked = [
                    ask_steps(peer, running, steps=STEPS, warm_up=WARM_STEPS, prompt_tokens=3)
                    for _ in range(repeats)
                ]
                theirs = [statistics.mean(each.seconds) for each in asked]
                cells += [_show(theirs), show(ratios(times[0], theirs), 2)]
            facts = {"running": running, "greedy": times[0], "sampled": times[1], "vllm": theirs}
            table.row(cells, facts)


def save_tiny_model(directory: Path, *, layers: int = 1) -> None:
    """A Llama of random float32 weights in Hugging Face layout, without a tokenizer."""
    from safetensors.numpy import save_file

    rng = np.random.default_rng(0)

    def weight(*shape: int) -> np.ndarray[Any, Any]:
        return rng.normal(0, 0.05, shape).astype(np.float32)

    tensors = {
        "model.embed_tokens.weight": weight(VOCAB, HIDDEN),
        "model.norm.weight": np.ones(HIDDEN, np.float32),
    }
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}.{name}.weight"] = np.ones(HIDDEN, np.float32)
        for name in "qkvo":
            tensors[f"{prefix}.self_attn.{name}_proj.weight"] = weight(HIDDEN, HIDDEN)
        for name, shape in {
            "gate": (MLP, HIDDEN),
            "up": (MLP, HIDDEN),
            "down": (HIDDEN, MLP),
        }.items():
            tensors[f"{prefix}.mlp.{name}_proj.weight"] = weight(*shape)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "torch_dtype": "float32",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    (directory / "config.json").write_text(json.dumps(config))


def launch_tiny(directory: Path, running: int, **executor: Any) -> Engine:
    """The engine in this process, with nothing beside it."""
    return framework.launch(
        {
            "model": {"name": str(directory), "tokenizer": "none", "max_model_len": 1024},
            "executor": executor,
            "scheduler": {"max_num_seqs": running, "max_num_batched_tokens": 8192},
            "cache": {"num_blocks": 64 * running},
            "stats": {"loggers": []},
            "plugins": {"activation": "none"},
        }
    )


def step_times(
    engine: Engine, running: int, params: dict[str, Any], repeats: int = 9
) -> list[float]:
    """Seconds of a decode step of the engine core, outputs bundled but not processed."""
    core: Any = engine.engine._client._core  # type: ignore[attr-defined]
    sampling = SamplingParams(**params, max_tokens=900, ignore_eos=True, detokenize=False)
    for number in range(running):
        engine.engine.add_request(f"r{number}", [3 + number % 90, 4, 5], sampling)
    for _ in range(WARM_STEPS):
        core.step()
    return [_per_call(core.step, STEPS) for _ in range(repeats)]


def sampling_times(params: dict[str, Any], repeats: int = 9) -> list[float]:
    """Seconds of sampling a batch of logits with a peak, as those of a language model."""
    import torch

    from builtin_plugins.sampler_default.sampler import DefaultSampler
    from hookspecs.config import EngineConfig
    from hookspecs.contracts.logits import SamplerContext
    from hookspecs.types.step import NewRequest

    sampler = DefaultSampler(
        SamplerContext(
            config=EngineConfig(),
            vocab_size=SAMPLED_VOCAB,
            max_num_seqs=SAMPLED_ROWS,
            device="cpu",
        )
    )
    for slot in range(SAMPLED_ROWS):
        sampler.add(
            NewRequest(
                request_id=str(slot),
                slot=slot,
                token_ids=[1],
                num_prompt_tokens=1,
                num_computed_tokens=0,
                block_ids=([],),
                sampling_params=SamplingParams(**params),
            )
        )
    logits = torch.randn((SAMPLED_ROWS, SAMPLED_VOCAB), generator=torch.manual_seed(0)) * 3
    slots = np.arange(SAMPLED_ROWS, dtype=np.int32)
    sampler.sample(logits, slots)
    return [_per_call(lambda: sampler.sample(logits, slots), 3) for _ in range(repeats)]


def _per_call(call: Callable[[], object], times: int) -> float:
    begin = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - begin) / times


def _show(seconds: Sequence[float]) -> str:
    return show(spread([each * 1e3 for each in seconds]), 2)
