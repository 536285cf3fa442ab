"""How many threads compute, with which kernels, and what the start-up log says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from builtin_plugins.worker_cpu.threads import set_compute_threads, usable_cores
from framework.sdk import native
from hookspecs.contracts.model import ResolvedModel
from hookspecs.errors import ProviderNotFoundError
from tests.worker_cpu.driver import BACKENDS, Driver

Checkpoint = Callable[[str], ResolvedModel]


@pytest.fixture
def unchanged_threads() -> Iterator[None]:
    torch_threads, kernel_threads = torch.get_num_threads(), native.num_threads()
    yield
    torch.set_num_threads(torch_threads)
    native.set_num_threads(kernel_threads)


@pytest.mark.usefixtures("unchanged_threads")
def test_torch_and_kernels_get_as_many_threads() -> None:
    assert set_compute_threads(3) == 3
    assert torch.get_num_threads() == native.num_threads() == 3
    torch.set_num_threads(1)
    assert set_compute_threads(None) == 1, "no more than torch would use by itself"
    assert native.num_threads() == 1


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
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "available", lambda: "there is no C compiler\nInstall one.")
    driver = Driver(checkpoint("llama"))
    assert driver.attention_name == "sdpa"
    assert "of torch only (there is no C compiler), attention sdpa" in _compute_line(driver)
