"""How many threads compute, with which kernels, and what the start-up log says of it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import framework
from builtin_plugins.worker_cpu import threads
from builtin_plugins.worker_cpu.threads import (
    free_compute_threads,
    set_compute_threads,
    usable_cores,
)
from framework import LLM
from framework.sdk import native
from hookspecs.contracts.model import ResolvedModel
from hookspecs.errors import ProviderNotFoundError
from tests.worker_cpu.driver import BACKENDS, Driver

Checkpoint = Callable[[str], ResolvedModel]


class _Worker:
    """Stands for one."""


@pytest.fixture
def unchanged_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Workers of other tests may live on.
    monkeypatch.setattr(threads, "_given", weakref.WeakKeyDictionary())
    torch_threads, kernel_threads = torch.get_num_threads(), native.num_threads()
    yield
    torch.set_num_threads(torch_threads)
    native.set_num_threads(kernel_threads)


@pytest.mark.usefixtures("unchanged_threads")
def test_torch_and_kernels_get_as_many_threads() -> None:
    worker = _Worker()
    assert set_compute_threads(3, worker) == 3
    assert torch.get_num_threads() == native.num_threads() == 3
    torch.set_num_threads(1)
    assert set_compute_threads(None, worker) == 1, "no more than torch would use by itself"
    assert native.num_threads() == 1


@pytest.mark.usefixtures("unchanged_threads")
def test_workers_of_one_process_with_different_numbers(caplog: pytest.LogCaptureFixture) -> None:
    first, second, third = _Worker(), _Worker(), _Worker()
    set_compute_threads(1, first)
    set_compute_threads(1, second)
    set_compute_threads(2, first)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "all engines of this process compute with 2 threads" in record.message
    assert "another one here was started with 1." in record.message
    caplog.clear()
    free_compute_threads(second)
    set_compute_threads(3, first)
    del first  # never shut down, and gone
    gc.collect()
    set_compute_threads(1, third)
    assert not caplog.records


@pytest.mark.usefixtures("unchanged_threads")
def test_engines_of_one_process_with_different_numbers(
    checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    def launch(threads: int) -> LLM:
        return framework.launch(
            {
                "model": {"name": checkpoint("llama").path, "tokenizer": "none"},
                "executor": {"worker": "cpu", "threads": threads},
                "cache": {"num_blocks": 8},
            }
        )

    def warnings() -> list[str]:
        return [r.message for r in caplog.records if r.message.startswith("executor.threads")]

    with launch(1):
        pass
    with launch(2):
        assert not warnings()
        with launch(1):
            assert len(warnings()) == 1
            assert "with 1 threads" in warnings()[0] and "started with 2." in warnings()[0]


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("50000 100000", 1),
        ("100000 100000", 1),
        ("max 100000", None),
        ("100000000 100000", None),
        ("what", None),
    ],
)
def test_cores_are_those_that_the_container_has_time_for(
    tmp_path: Path, text: str, most: int | None
) -> None:
    free = usable_cores(tmp_path)  # it has no such file
    (tmp_path / "cpu.max").write_text(text)
    assert usable_cores(tmp_path) == (free if most is None else most)


def _compute_line(driver: Driver) -> str:
    (line,) = (line for line in driver.reports if line.startswith("compute: "))
    return line


def test_attention_is_the_compiled_one_where_kernels_can_be_compiled(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "available", lambda: None)
    driver = Driver(checkpoint("llama"))
    assert driver.attention_name == "cpu_paged"
    assert "1 thread, kernels native, attention cpu_paged" in _compute_line(driver)


def test_attention_is_torchs_where_the_plugin_of_the_other_is_blocked(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "available", lambda: None)
    driver = Driver(checkpoint("llama"), backends={"sdpa": BACKENDS["sdpa"]})
    assert driver.attention_name == "sdpa"
    assert "kernels native, attention sdpa" in _compute_line(driver)
    with pytest.raises(ProviderNotFoundError):
        Driver(checkpoint("llama"), attention="cpu_paged", backends={"sdpa": BACKENDS["sdpa"]})


def test_attention_is_torchs_without_a_compiler(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native, "available", lambda: "there is no C compiler\nInstall one.")
    driver = Driver(checkpoint("llama"))
    assert driver.attention_name == "sdpa"
    assert "of torch only (there is no C compiler), attention sdpa" in _compute_line(driver)
    (warning,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert "four times as long: there is no C compiler\nInstall one." in warning.getMessage()
