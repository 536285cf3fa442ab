"""What is registered: the worker's surroundings and the model source."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from builtin_plugins.worker_scripted.options import ScriptedOptions
from builtin_plugins.worker_scripted.plugin import plugin
from builtin_plugins.worker_scripted.source import ScriptedSource
from builtin_plugins.worker_scripted.worker import ScriptedWorker
from hookspecs.config import EngineConfig, ModelConfig
from hookspecs.contracts.model import ModelSourceContext
from hookspecs.errors import ModelNotFoundError, UnsupportedModelError

Drive = Callable[..., Any]


def _source(tokenizer: str | None = None, **options: Any) -> ScriptedSource:
    config = EngineConfig(model=ModelConfig(tokenizer=tokenizer))
    return ScriptedSource(ModelSourceContext(config=config, options=ScriptedOptions(**options)))


def test_both_providers_are_called_scripted_and_share_options() -> None:
    providers = [*plugin.register_workers(), *plugin.register_model_sources()]
    for provider, target in zip(providers, (ScriptedWorker, ScriptedSource), strict=True):
        module, _, name = provider.target.partition(":")
        assert getattr(sys.modules[module], name) is target
        assert provider.name == "scripted"
        assert provider.options is ScriptedOptions
    assert providers[0].capabilities == ScriptedWorker.capabilities
    assert ScriptedWorker.rate() <= 0


def test_plain_greedy_work_loads_nothing_heavy() -> None:
    code = (
        "import sys, builtin_plugins.worker_scripted.plugin;"
        "print([m for m in ('torch', 'numpy') if m in sys.modules]);"
        "import builtin_plugins.worker_scripted.worker, builtin_plugins.worker_scripted.source;"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "False"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": 10, "eos_token_id": 10}, "below vocab_size"),
        ({"num_groups": 2}, "sliding_window"),
        ({"num_groups": 2, "sliding_window": 4, "num_layers": 1}, "num_layers"),
        ({"vocab_size": 1, "eos_token_id": 0}, "vocab_size"),
        ({"wrong": 1}, "wrong"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(options, ScriptedOptions)


def test_layers_and_cache_size(drive: Drive) -> None:
    worker = drive(num_layers=3, sliding_window=8).worker
    assert [spec.sliding_window for spec in worker.kv_layer_specs()] == [8, 8, 8]
    worker = drive(num_layers=3, sliding_window=8, num_groups=2).worker
    specs = worker.kv_layer_specs()
    assert [spec.layer for spec in specs] == [0, 1, 2]
    assert [spec.sliding_window for spec in specs] == [None, 8, None]
    assert worker.available_kv_bytes() == 64 * 1024 * 1024
    assert worker.device == "cpu"
    worker.shutdown()
    worker.shutdown()


def test_the_source_resolves_its_names_only(tmp_path: Path) -> None:
    source = _source(vocab_size=50, max_model_len=70, eos_token_id=3)
    assert source.matches("scripted")
    assert source.matches("scripted:x")
    assert not any(source.matches(name) for name in ("", "scripted2", "org/scripted", "package:x"))
    plain = source.resolve("scripted", None)
    assert plain.path is plain.tokenizer_path is None
    assert not plain.info.has_tokenizer
    assert (plain.info.vocab_size, plain.info.max_model_len) == (50, 70)
    assert plain.info.eos_token_ids == (3,)
    with_tokenizer = source.resolve(f"scripted:{tmp_path}", None)
    assert with_tokenizer.tokenizer_path == str(tmp_path)
    assert with_tokenizer.info.has_tokenizer


def test_the_configured_tokenizer_comes_first(tmp_path: Path) -> None:
    assert _source(str(tmp_path)).resolve("scripted", None).tokenizer_path == str(tmp_path)
    assert _source("none").resolve(f"scripted:{tmp_path}", None).tokenizer_path is None


def test_a_tokenizer_in_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tokenizer_config.json")
    with pytest.raises(UnsupportedModelError, match=r"tokenizer_config\.json' is a named pipe"):
        _source().resolve(f"scripted:{tmp_path}", None)


def test_what_the_source_can_not_find(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="missing"):
        _source().resolve(f"scripted:{tmp_path / 'missing'}", None)
    with pytest.raises(ModelNotFoundError, match="revision"):
        _source().resolve("scripted", "main")
