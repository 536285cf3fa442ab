"""The executor's completed future is a future like any other."""

from __future__ import annotations

from concurrent.futures import ALL_COMPLETED, Future, as_completed, wait

import pytest

from builtin_plugins.executor_uniproc.completed import CompletedFuture


def test_a_result() -> None:
    future: Future[int] = CompletedFuture(7)
    assert isinstance(future, Future)
    assert future.done() and future.result(timeout=0) == 7 and future.exception() is None


def test_an_error() -> None:
    error = ValueError("no")
    future: Future[int] = CompletedFuture(error=error)
    assert future.done() and future.exception() is error
    with pytest.raises(ValueError, match="no"):
        future.result()


@pytest.mark.parametrize("error", [None, ValueError("no")])
def test_what_others_do_with_futures(error: ValueError | None) -> None:
    future: Future[int] = CompletedFuture(1, error)
    heard: list[Future[int]] = []
    future.add_done_callback(heard.append)
    assert heard == [future]
    assert not future.running() and not future.cancelled() and not future.cancel()
    assert wait([future], return_when=ALL_COMPLETED).done == {future}
    assert list(as_completed([future])) == [future]
    assert "finished" in repr(future)
    with pytest.raises(AttributeError, match="unknown"):
        _ = future.unknown  # type: ignore[attr-defined]
