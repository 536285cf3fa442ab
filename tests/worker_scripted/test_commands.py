"""Control commands of the scripted worker, which show kernel tests what was really done."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch

from builtin_plugins.executor_uniproc.executor import UniprocExecutor
from builtin_plugins.worker_scripted.rule import default_token
from hookspecs.contracts.executor import ExecutorContext
from hookspecs.contracts.worker import WorkerCapability
from hookspecs.errors import (
    CommandError,
    InternalError,
    InvalidRequestError,
    UnsupportedFeatureError,
)

Drive = Callable[..., Any]

PROMPT = [5, 6, 7, 8, 9]
ALL = ["weights", "kv_cache"]


def _run(driver: Any, slot: int = 0, released: Iterable[int] = ()) -> list[int]:
    """Two tokens after PROMPT, in blocks of the slot's own."""
    blocks = [2 * slot + 1, 2 * slot + 2]
    new = [driver.request(slot, PROMPT, blocks)]
    first = driver.step((slot, 5, 0, True), new=new, released=[*released])
    return [*first.token_ids.tolist(), *driver.step((slot, 1, 5, True)).token_ids.tolist()]


def _with_offset(driver: Any, offset: int) -> list[int]:
    options = driver.options
    known = [*PROMPT]
    for _ in range(2):
        known.append(default_token(known, options.vocab_size, options.eos_token_id, offset))
    return known[len(PROMPT) :]


def _update(driver: Any, value: Any) -> Any:
    return driver.worker.update_weights(None, {"offset": value})


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("verify", [True, False])
def test_the_same_tokens_after_waking(level: int, verify: bool, drive: Drive) -> None:
    driver = drive(verify=verify)
    expected = driver.rule(PROMPT, 2)
    assert _run(driver) == expected
    driver.worker.sleep(level)
    driver.worker.wake_up(ALL)
    assert _run(driver, released=[0]) == expected


@pytest.mark.parametrize(
    ("woken", "message"),
    [([], "weights and kv_cache"), (["weights"], "kv_cache"), (["kv_cache"], "weights")],
)
def test_no_step_while_asleep(woken: list[str], message: str, drive: Drive) -> None:
    driver = drive()
    driver.worker.sleep(2)
    driver.worker.sleep(1)
    driver.worker.wake_up(woken)
    with pytest.raises(InternalError, match=f"whose {message} sleep"):
        _run(driver)


@pytest.mark.parametrize("level", [1, 2])
def test_what_was_cached_before_sleep_is_stale(level: int, drive: Drive) -> None:
    driver = drive()
    _run(driver)
    driver.worker.sleep(level)
    driver.worker.wake_up(ALL)
    with pytest.raises(InternalError, match=r"slot 1: .*position 0"):
        driver.step((1, 1, 4, True), new=[driver.request(1, PROMPT, [1, 5], computed=4)])


def test_a_request_that_was_not_preempted_before_sleep(drive: Drive) -> None:
    driver = drive()
    _run(driver)
    driver.worker.sleep(1)
    driver.worker.wake_up(ALL)
    with pytest.raises(InternalError, match=r"slot 0: .*position 0"):
        driver.step((0, 1, 6, True))


@pytest.mark.parametrize("offset", [1, -1, 998, 10**15])
def test_weights_tell_themselves_apart(offset: int, drive: Drive) -> None:
    driver = drive()
    assert _update(driver, np.array([offset])) == 1
    tokens = _run(driver)
    assert tokens == _with_offset(driver, offset)
    assert tokens[0] != driver.rule(PROMPT, 1)[0]
    assert driver.options.eos_token_id not in tokens


def test_the_forms_of_an_offset(drive: Drive) -> None:
    driver = drive()
    released: list[int] = []
    for value in (np.int32(7), np.array([[7]], np.uint8), torch.tensor(7), torch.tensor([7])):
        _update(driver, 0)
        _update(driver, value)
        assert _run(driver, released=released) == _with_offset(driver, 7)
        released = [0]


def test_what_other_weights_cached_is_stale(drive: Drive) -> None:
    driver = drive()
    _run(driver)
    _update(driver, np.array(3))
    with pytest.raises(InternalError, match=r"slot 0: .*position 0"):
        driver.step((0, 1, 6, True))


def test_weights_after_sleep(drive: Drive) -> None:
    driver = drive()
    _update(driver, np.array(3))
    driver.worker.sleep(1)
    driver.worker.wake_up(ALL)
    assert _run(driver) == _with_offset(driver, 3), "level 1: as they were"
    driver.worker.sleep(2)
    with pytest.raises(CommandError, match="asleep"):
        _update(driver, np.array(4))
    driver.worker.wake_up(ALL)
    assert _run(driver, released=[0]) == _with_offset(driver, 0), "level 2: as loaded"


@pytest.mark.parametrize(
    ("path", "tensors", "message"),
    [
        ("weights.safetensors", None, "has no files, but path is 'weights.safetensors'"),
        (None, None, r"one weight 'offset', but given are \[\]"),
        (None, {"offset": np.array(1), "bias": np.array(1)}, r"given are \['bias', 'offset'\]"),
        (None, {"offset": np.array([1, 2])}, r"shape \(2,\) and dtype int64"),
        (None, {"offset": np.array(1.0)}, r"shape \(\) and dtype float64"),
        (None, {"offset": "one"}, "needed is one integer"),
    ],
)
def test_weights_that_are_refused(path: Any, tensors: Any, message: str, drive: Drive) -> None:
    driver = drive()
    with pytest.raises(InvalidRequestError, match=message):
        driver.worker.update_weights(path, tensors)
    assert _run(driver) == driver.rule(PROMPT, 2)


def _executor(driver: Any) -> UniprocExecutor:
    context = driver.worker.context
    executor = UniprocExecutor(
        ExecutorContext(
            config=context.config,
            model=context.model,
            max_model_len=context.max_model_len,
            create_worker=lambda rank, local_rank, world_size: driver.worker,
        )
    )
    executor.start()
    return executor


def test_through_the_executor(drive: Drive) -> None:
    driver = drive()
    executor = _executor(driver)
    assert executor.collective_rpc("update_weights", (None, {"offset": np.array(3)})) == [1]
    assert executor.collective_rpc("sleep", (1,)) == [None]
    assert executor.collective_rpc("wake_up", (ALL,)) == [None]
    assert _run(driver) == _with_offset(driver, 3)


@pytest.mark.parametrize(
    ("command", "args", "error"),
    [
        ("sleep", (7,), InvalidRequestError),
        ("wake_up", (["scheduling"],), InvalidRequestError),
        ("update_weights", ("a path", None), InvalidRequestError),
        ("start_profile", ("a directory",), UnsupportedFeatureError),
        ("stop_profile", (), UnsupportedFeatureError),
        ("shutdown", (), KeyError),
    ],
)
def test_errors_keep_their_class_through_the_executor(
    command: str, args: tuple[Any, ...], error: type[Exception], drive: Drive
) -> None:
    with pytest.raises(error) as caught:
        _executor(drive()).collective_rpc(command, args)
    assert type(caught.value) is error
    if error is not KeyError:
        assert caught.value.__notes__ == ["raised by the worker of rank 0"]


def test_profiles_are_not_declared(drive: Drive) -> None:
    capabilities = drive().worker.capabilities
    assert {WorkerCapability.SLEEP, WorkerCapability.UPDATE_WEIGHTS} <= capabilities
    assert WorkerCapability.PROFILE not in capabilities
