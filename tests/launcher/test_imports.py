"""What importing and launching load, and in what order."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from framework.process.openmp import let_compute_threads_sleep

_HEAVY = ("torch", "transformers", "tokenizers", "numpy", "zmq", "safetensors", "rich", "asyncio")


def _prints(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("name", ["framework", "hookspecs"])
def test_the_import_is_light(name: str) -> None:
    found = _prints(
        f"import sys; before = set(sys.modules); import {name}; "
        f"print([m for m in {_HEAVY!r} if m in sys.modules], len(set(sys.modules) - before) < 200)"
    )
    assert found == "[] True"


def test_rating_the_model_loaders_of_this_distribution_imports_no_transformers() -> None:
    """All of them are asked, and one that is not chosen must not cost seconds."""
    found = _prints(
        "import sys\n"
        "from framework.config import load_config\n"
        "from framework.core.choice import choose_loader\n"
        "from framework.plugins.manager import PluginManager\n"
        "from hookspecs.contracts.model import ModelInfo, ResolvedModel\n"
        "config = load_config({'plugins': {'activation': 'none'}}).config\n"
        "info = ModelInfo(architecture='X', vocab_size=8, max_model_len=8)\n"
        "model = ResolvedModel(name='m', path='/none', tokenizer_path=None, info=info)\n"
        "print(choose_loader(PluginManager.build(config), model, dtype='float32', device='npu',\n"
        "                    report=lambda line: None), 'transformers' in sys.modules)"
    )
    assert found == "transformers False"


def test_compute_threads_sleep_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    let_compute_threads_sleep()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    let_compute_threads_sleep()
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"


def test_nothing_is_set_where_it_would_have_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    let_compute_threads_sleep()
    assert "OMP_WAIT_POLICY" not in os.environ
