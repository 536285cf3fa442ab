"""A worker that sleeps gives memory back, and computes the same after waking."""

from __future__ import annotations

import gc
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from builtin_plugins.attention_sdpa.backend import SdpaAttention
from builtin_plugins.model_transformers.loader import TransformersLoader
from hookspecs.contracts.model import LoadedModel, ResolvedModel
from hookspecs.errors import (
    CommandError,
    InternalError,
    InvalidRequestError,
    UnsupportedModelError,
)
from tests.worker_cpu.driver import Driver, Request, random_prompt
from tests.worker_cpu.families import FAMILIES, Reference, resolved, save_model

Checkpoint = Callable[[str], ResolvedModel]
References = Callable[[str], Reference]
PROMPTS = [random_prompt(length) for length in (17, 6, 1)]
ALL = ["weights", "kv_cache"]


def _tokens(driver: Driver, **how: Any) -> list[list[int]]:
    requests = [Request(prompt, 8) for prompt in PROMPTS]
    driver.run(*requests, chunk=5, **how)
    return [request.output for request in requests]


def _expected(reference: Reference) -> list[list[int]]:
    return [reference.greedy(prompt, 8) for prompt in PROMPTS]


@pytest.mark.parametrize("attention", ["sdpa", "cpu_paged"])
@pytest.mark.parametrize("family", ["llama", "gemma2"])
@pytest.mark.parametrize("level", [1, 2])
def test_the_same_tokens_after_waking(
    level: int, family: str, attention: str, checkpoint: Checkpoint, reference: References
) -> None:
    driver = Driver(checkpoint(family), attention=attention)
    expected = _expected(reference(family))
    assert _tokens(driver) == expected
    for _ in range(2):
        driver.worker.sleep(level)
        driver.worker.wake_up(ALL)
        assert _tokens(driver) == expected


@pytest.mark.parametrize("level", [1, 2])
def test_requests_that_were_preempted_go_on(
    level: int, checkpoint: Checkpoint, reference: References
) -> None:
    """Their slots are released with the first step after waking."""
    driver = Driver(checkpoint("llama"))

    def nap() -> None:
        driver.worker.sleep(level)
        driver.worker.wake_up(ALL)

    assert _tokens(driver, preempt_at=6, then=nap) == _expected(reference("llama"))


class _Watch:
    """Makes loaders and attention backends, and watches what they allocate."""

    def __init__(self) -> None:
        self.weights: list[weakref.ref[Any]] = []
        self.buffers: list[weakref.ref[Any]] = []
        watch = self

        class Loader(TransformersLoader):
            def load(self, *args: Any, **kwargs: Any) -> Any:
                model = super().load(*args, **kwargs)
                watch.weights += [weakref.ref(one) for one in (model, *watch.tensors(model))]
                return model

        class Backend(SdpaAttention):
            def allocate(self, *args: Any) -> torch.Tensor:
                buffer = super().allocate(*args)
                assert not buffer.any(), "zeroed; this also takes the memory"
                watch.buffers.append(weakref.ref(buffer.fill_(0)))
                return buffer

        self.loader = Loader
        self.backends = {"sdpa": Backend}

    def tensors(self, model: LoadedModel) -> list[torch.Tensor]:
        (module,) = (one for one in vars(model).values() if isinstance(one, torch.nn.Module))
        return [*module.parameters(), *module.buffers()]

    def alive(self) -> tuple[int, int]:
        """Weights and KV buffers, each with its tensors."""
        gc.collect()
        return (
            sum(one() is not None for one in self.weights),
            sum(one() is not None for one in self.buffers),
        )

    def driver(self, model: ResolvedModel, **options: Any) -> Driver:
        return Driver(
            model, attention="sdpa", make_loader=self.loader, backends=self.backends, **options
        )


def test_nothing_refers_to_what_sleeps(checkpoint: Checkpoint) -> None:
    watch = _Watch()
    driver = watch.driver(checkpoint("llama"))
    expected = _tokens(driver)
    weights, buffers = watch.alive()
    assert weights > 20 and buffers == 2
    driver.worker.sleep(1)
    assert watch.alive() == (weights, 0)
    driver.worker.sleep(2)
    assert watch.alive() == (0, 0)
    driver.worker.wake_up(["weights"])
    assert watch.alive() == (weights, 0)
    driver.worker.wake_up(["kv_cache"])
    assert watch.alive() == (weights, buffers)
    assert _tokens(driver) == expected


def test_the_system_has_the_memory_back(checkpoint: Checkpoint) -> None:
    driver = _Watch().driver(checkpoint("llama"), num_blocks=2**16)  # 64 MiB
    process = psutil.Process()
    before = process.memory_info().rss
    driver.worker.sleep(1)
    assert before - process.memory_info().rss > 48 * 2**20


def test_levels_only_go_deeper(checkpoint: Checkpoint) -> None:
    watch = _Watch()
    driver = watch.driver(checkpoint("llama"))
    driver.worker.sleep(2)
    driver.worker.sleep(1)
    driver.worker.sleep(2)
    assert watch.alive() == (0, 0)
    driver.worker.wake_up(["kv_cache"])
    assert watch.alive() == (0, 2)
    driver.worker.sleep(1)
    assert watch.alive() == (0, 0)


def test_what_is_awake_is_left_alone(checkpoint: Checkpoint) -> None:
    watch = _Watch()
    driver = watch.driver(checkpoint("llama"))
    expected = _tokens(driver)
    driver.worker.wake_up(ALL)
    driver.worker.sleep(1)
    driver.worker.wake_up(["kv_cache"])
    driver.worker.wake_up([*ALL, *ALL])
    driver.worker.wake_up([])
    assert len(watch.buffers) == 4, "two at the start, two once awake"
    assert _tokens(driver) == expected


@pytest.mark.parametrize(
    ("woken", "message"),
    [([], "weights and kv_cache"), (["weights"], "kv_cache"), (["kv_cache"], "weights")],
)
def test_no_step_while_asleep(woken: list[str], message: str, checkpoint: Checkpoint) -> None:
    driver = Driver(checkpoint("llama"))
    driver.worker.sleep(2)
    driver.worker.wake_up(woken)
    with pytest.raises(InternalError, match=f"whose {message} sleep"):
        driver.run(Request([5, 6], 1))


@pytest.mark.parametrize("level", [0, 3, -1])
def test_levels_that_do_not_exist(level: int, checkpoint: Checkpoint) -> None:
    driver = Driver(checkpoint("llama"))
    with pytest.raises(InvalidRequestError, match=f"level is {level}; .* 1 .* or 2"):
        driver.worker.sleep(level)


def test_tags_that_do_not_exist(checkpoint: Checkpoint) -> None:
    driver = Driver(checkpoint("llama"))
    driver.worker.sleep(1)
    with pytest.raises(InvalidRequestError, match="'scheduling'; its tags are weights, kv_cache"):
        driver.worker.wake_up(["kv_cache", "scheduling"])
    with pytest.raises(InternalError, match="kv_cache sleep"):
        driver.run(Request([5, 6], 1))


def test_files_that_are_gone_or_of_another_model(
    tmp_path: Path, checkpoint: Checkpoint, reference: References
) -> None:
    def put(source: ResolvedModel) -> None:
        shutil.rmtree(tmp_path, ignore_errors=True)
        shutil.copytree(str(source.path), tmp_path)

    put(checkpoint("llama"))
    driver = Driver(resolved(tmp_path))
    driver.worker.sleep(2)
    shutil.rmtree(tmp_path)
    with pytest.raises(UnsupportedModelError):
        driver.worker.wake_up(ALL)
    put(checkpoint("gemma2"))
    with pytest.raises(CommandError, match="another model"):
        driver.worker.wake_up(ALL)
    put(checkpoint("llama"))
    driver.worker.wake_up(ALL)
    assert _tokens(driver) == _expected(reference("llama"))


def test_weights_come_back_as_in_the_files(tmp_path: Path, checkpoint: Checkpoint) -> None:
    other = save_model(tmp_path, seed=1, **FAMILIES["llama"])
    driver = Driver(checkpoint("llama"))
    loaded = _tokens(driver)
    driver.worker.update_weights(other.path, None)
    updated = _tokens(driver)
    assert updated != loaded
    driver.worker.sleep(1)
    driver.worker.wake_up(ALL)
    assert _tokens(driver) == updated, "level 1: as they were"
    driver.worker.sleep(2)
    driver.worker.wake_up(ALL)
    assert _tokens(driver) == loaded


def test_shutdown_while_asleep(checkpoint: Checkpoint) -> None:
    worker = Driver(checkpoint("llama")).worker
    worker.sleep(2)
    worker.shutdown()
    worker.shutdown()
