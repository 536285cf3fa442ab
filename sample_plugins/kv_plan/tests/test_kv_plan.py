"""Shapes, plans, and the command in the command line's own entry point."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest
from hookspecs import EngineConfig
from hookspecs.config import CacheConfig, Dtype, ExecutorConfig
from hookspecs.contracts.frontend import CliContext
from hookspecs.errors import ConfigError, ModelNotFoundError, UnsupportedModelError
from hypothesis import given
from hypothesis import strategies as st

from kv_plan.command import KVPlanCommand
from kv_plan.model_shape import ModelShape, read_model_shape
from kv_plan.plan import Budget, Plan, make_plan
from kv_plan.plugin import plugin

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
SLIDING = {"layer_types": ["sliding_attention"] * 24 + ["full_attention"] * 8}


def shape(tmp_path: Path, **changes: Any) -> ModelShape:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, **changes}))
    return read_model_shape(str(tmp_path))


def plan(shape: ModelShape, **changes: Any) -> Plan:
    values: dict[str, Any] = {
        "kv_bytes": 8 << 30,
        "num_blocks": None,
        "dtype": "bfloat16",
        "tensor_parallel_size": 1,
        "block_size": 16,
        "max_num_batched_tokens": 2048,
        "lengths": (),
    }
    return make_plan("m", shape, Budget(**{**values, **changes}))


def test_a_llama(tmp_path: Path) -> None:
    found = plan(shape(tmp_path))
    assert (found.bytes_per_token, found.bytes_per_block) == (131072, 2 << 20)
    # One of the 4096 blocks is the null block.
    assert (found.num_blocks, found.max_request_tokens) == (4095, 65520)
    fits = [(fit.tokens, fit.blocks, fit.requests) for fit in found.fits]
    assert fits[0] == (1024, 64, 63)
    assert fits[-1] == (131072, 8192, 0)
    assert found.notes == []


def test_names_that_families_have_for_the_same(tmp_path: Path) -> None:
    gpt2 = {"n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024}
    (tmp_path / "gpt2.json").write_text(json.dumps(gpt2))
    found = read_model_shape(str(tmp_path / "gpt2.json"))
    assert (found.num_kv_heads, found.head_size, len(found.windows)) == (12, 64, 12)
    assert found.dtype is None


def test_the_part_for_text_and_a_head_size_of_its_own(tmp_path: Path) -> None:
    found = shape(tmp_path, text_config={**LLAMA, "head_dim": 256, "num_hidden_layers": 2})
    assert (found.head_size, len(found.windows)) == (256, 2)
    assert found.architecture == "LlamaForCausalLM"


def test_windows_are_groups_of_equal_size(tmp_path: Path) -> None:
    found = plan(shape(tmp_path, **SLIDING, sliding_window=1024), lengths=(131072,))
    assert (found.num_groups, found.num_sliding_layers) == (4, 24)
    assert found.bytes_per_token_beyond_windows == found.bytes_per_token // 4
    assert found.bytes_per_block == (2 << 20) // 4
    # 8192 of the full layers; a window and a step, and boundaries of blocks, three times.
    assert found.fits[0].blocks == 8192 + 3 * (-(-(1023 + 2048) // 16) + 1)


def test_a_window_in_every_layer_bounds_what_a_request_takes(tmp_path: Path) -> None:
    found = plan(shape(tmp_path, sliding_window=4096, model_type="mistral"))
    assert found.max_request_tokens is None
    assert found.bytes_per_token_beyond_windows == 0
    assert found.num_groups == 1


def test_a_window_of_unknown_layers_is_not_counted_and_said(tmp_path: Path) -> None:
    found = shape(tmp_path, sliding_window=4096, model_type="new")
    assert found.windows == (None,) * 32
    assert "more may fit" in plan(found).notes[0]
    off = shape(tmp_path, sliding_window=4096, use_sliding_window=False)
    assert off.notes == ()


def test_ranks_share_heads(tmp_path: Path) -> None:
    model = shape(tmp_path)
    per_rank = [plan(model, tensor_parallel_size=n).kv_heads for n in (1, 2, 8, 16, 32)]
    assert per_rank == [8, 4, 1, 1, 1]
    for ranks in (3, 64):
        with pytest.raises(ConfigError, match=f"--tensor-parallel is {ranks}.* 8 KV heads"):
            plan(model, tensor_parallel_size=ranks)


def test_a_budget_that_is_too_small(tmp_path: Path) -> None:
    model = shape(tmp_path)
    with pytest.raises(ConfigError, match=r"Raise --gib to 0.006 or more"):
        plan(model, kv_bytes=(6 << 20) - 1)
    assert plan(model, kv_bytes=6 << 20).num_blocks == 2


@given(
    st.lists(st.sampled_from([None, 7, 64]), min_size=1, max_size=40),
    st.integers(2, 5000),
    st.integers(1, 64),
    st.integers(1, 4096),
    st.integers(1, 100_000),
)
def test_what_fits_is_what_the_blocks_hold(
    windows: list[int | None], num_blocks: int, block_size: int, step: int, length: int
) -> None:
    model = ModelShape(
        architecture="A",
        windows=tuple(windows),
        num_heads=4,
        num_kv_heads=2,
        head_size=8,
        dtype=None,
        max_model_len=100,
    )
    found = plan(
        model,
        num_blocks=num_blocks,
        block_size=block_size,
        max_num_batched_tokens=step,
        lengths=(length, 1),
    )
    assert found.kv_bytes == (num_blocks + 1) * found.bytes_per_block
    fit, one = found.fits
    assert one.blocks == found.num_groups
    assert fit.requests * fit.blocks <= num_blocks < (fit.requests + 1) * fit.blocks
    longest = found.max_request_tokens
    assert (longest is None or longest >= length) == (fit.blocks <= num_blocks)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_hidden_layers": None}, "has no num_hidden_layers or n_layer"),
        ({"num_hidden_layers": 0}, "num_hidden_layers = 0"),
        ({"head_dim": "x"}, "head_dim = 'x'"),
        ({"hidden_size": 8}, "has no head_dim"),
        ({"kv_lora_rank": 512}, "latent"),
        ({"multi_query": True}, "multi_query"),
        ({"layer_types": ["full_attention"]}, "not a list of 32"),
        ({"layer_types": ["linear_attention"] * 32}, "linear_attention"),
        (SLIDING, "has no sliding_window"),
    ],
)
def test_models_that_can_not_be_counted(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedModelError, match=said):
        shape(tmp_path, **changes)


def test_files_that_are_not_there_or_not_right(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no JSON")
    (tmp_path / "list").write_text("[]")
    for name in ("text", "list"):
        with pytest.raises(UnsupportedModelError, match="JSON"):
            read_model_shape(str(tmp_path / name))
    for name in (str(tmp_path), "org/name", "/" + "x" * 5000, "a\0b", "~nobody-at-all/x"):
        with pytest.raises(ModelNotFoundError):
            read_model_shape(name)


def run(config: EngineConfig, *argv: str) -> int:
    command = KVPlanCommand(CliContext(config=config))
    parser = ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(argv))


def test_settings_count_where_no_argument_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape(tmp_path)
    config = EngineConfig(
        cache=CacheConfig(block_size=32, num_blocks=100, kv_dtype=Dtype.FLOAT32),
        executor=ExecutorConfig(tensor_parallel_size=2),
    )
    assert run(config, str(tmp_path), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    facts = [found[key] for key in ("block_size", "num_blocks", "dtype", "tensor_parallel_size")]
    assert facts == [32, 100, "float32", 2]
    argv = ["--gib", "1", "--dtype", "float16", "--tensor-parallel", "4", "--length", "100"]
    assert run(config, str(tmp_path), *argv, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kv_bytes"], found["dtype"], found["kv_heads"]) == (1 << 30, "float16", 2)
    assert [fit["tokens"] for fit in found["fits"]] == [100]


def test_a_dtype_that_has_no_cache(tmp_path: Path) -> None:
    shape(tmp_path, torch_dtype="float8_e4m3fn")
    with pytest.raises(ConfigError, match="Give --dtype, one of bfloat16"):
        run(EngineConfig(), str(tmp_path))
    assert run(EngineConfig(), str(tmp_path), "--dtype=bfloat16") == 0


@pytest.mark.parametrize(
    "argv",
    [["--gib=0"], ["--gib=nan"], ["--gib=x"], ["--length=0"], ["--length=²"], ["--dtype=int8"]],
)
def test_arguments_out_of_bounds(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(EngineConfig(), "m", *argv)
    assert argv[0].partition("=")[0] in capsys.readouterr().err


def framework(*argv: str) -> subprocess.CompletedProcess[str]:
    program = Path(sysconfig.get_path("scripts"), "framework")
    return subprocess.run(
        [sys.executable, str(program), *argv], capture_output=True, text=True, timeout=60
    )


def test_the_installed_command_and_its_exit_codes(tmp_path: Path) -> None:
    shape(tmp_path, **SLIDING, sliding_window=1024)
    done = framework("kv-plan", str(tmp_path), "--cache.block_size=32", "--length=1000")
    assert (done.returncode, done.stderr) == (0, "")
    assert "32, 24 with a window (LlamaForCausalLM)" in done.stdout
    assert "32 tokens of one of 4 groups of layers" in done.stdout
    assert done.stdout.splitlines()[-1].split() == ["1,000", "128", "63"]
    missing = framework("kv-plan", str(tmp_path / "missing"))
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.startswith("framework: error: there is no file")
    small = framework("kv-plan", str(tmp_path), "--gib=0.0001")
    assert small.returncode == 2
    assert framework("kv-plan").returncode == 2


def test_the_plugin_offers_the_command() -> None:
    (provider,) = plugin.register_cli_commands()
    assert provider.name == plugin.PLUGIN.name == "kv-plan"
