"""The thread pool of compiled kernels: every piece of work is done once, whoever calls."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.sdk import native
from tests.sdk.kernels import covered, library, nested


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return library(tmp_path_factory.mktemp("source"))


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = native.num_threads()
    yield
    native.set_num_threads(before)


@given(
    threads=st.integers(1, 5),
    count=st.one_of(st.integers(-1, 40), st.integers(0, 3000)),
    grain=st.one_of(st.integers(0, 8), st.integers(1, 4000), st.just(2**62)),
)
def test_each_index_once(kernels: ctypes.CDLL, threads: int, count: int, grain: int) -> None:
    native.set_num_threads(threads)
    assert native.num_threads() == threads
    assert (covered(kernels, count, grain) == 1).all()


def test_many_short_loops(kernels: ctypes.CDLL) -> None:
    native.set_num_threads(4)
    for count in range(2000):
        assert (covered(kernels, count % 9, 1) == 1).all()


def test_a_loop_in_a_loop(kernels: ctypes.CDLL) -> None:
    native.set_num_threads(3)
    for _ in range(50):
        assert (nested(kernels, 20, 30) == 1).all()


def test_several_callers_at_once(kernels: ctypes.CDLL) -> None:
    native.set_num_threads(3)
    failures: list[int] = []
    begin = threading.Barrier(4)

    def call() -> None:
        begin.wait()
        failures.extend(
            count for count in range(300) if not (covered(kernels, count, 2) == 1).all()
        )

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert failures == []


def test_other_number_of_threads_between_loops(kernels: ctypes.CDLL) -> None:
    for threads in (1, 4, 2, 5, 1, 3):
        native.set_num_threads(threads)
        assert (covered(kernels, 500, 3) == 1).all()


@pytest.mark.parametrize("threads", [0, -1, 1025])
def test_number_of_threads_is_checked(threads: int) -> None:
    with pytest.raises(ValueError, match=f"threads is {threads}; it must be 1 to 1024"):
        native.set_num_threads(threads)


@pytest.mark.parametrize(("given", "threads"), [("3,2", 3), ("99999999999", 1024)])
def test_number_of_threads_from_the_environment(given: str, threads: int) -> None:
    program = "from framework.sdk import native; print(native.num_threads())"
    environment = {**os.environ, "OMP_NUM_THREADS": given}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=True
    )
    assert int(done.stdout) == threads


def test_after_fork(kernels: ctypes.CDLL) -> None:
    native.set_num_threads(3)
    covered(kernels, 100, 1)
    child = os.fork()
    if child == 0:
        done = all((covered(kernels, 200, 1) == 1).all() for _ in range(50))
        os._exit(0 if done else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert np.all(covered(kernels, 100, 1) == 1)
