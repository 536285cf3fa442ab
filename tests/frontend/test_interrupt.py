"""Ctrl-C: between steps, never inside of one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from framework.frontend.interrupt import deferred_interrupt, interrupts_deferred
from hookspecs.types.sampling import SamplingParams


def press() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    """Python's own, which must be in place again after each test."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_the_first_waits_for_the_end() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_deferred():
        press()
        done.append("all")
    assert done == ["all"]


def test_the_second_is_meant() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_deferred():
        press()
        press()
        done.append("all")
    assert not done


def test_it_is_not_lost_when_the_block_raises() -> None:
    with pytest.raises(KeyboardInterrupt) as caught, interrupts_deferred():
        press()
        raise OSError("disk")
    assert isinstance(caught.value.__context__, OSError)


def test_a_handler_of_the_program_is_called_once_and_afterwards() -> None:
    told: list[str] = []
    signal.signal(signal.SIGINT, lambda number, frame: told.append("pressed"))
    with interrupts_deferred():
        press()
        told.append("end")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert told == ["end", "pressed"]


def test_inside_of_deferred_interrupt_the_flag_is_set() -> None:
    with deferred_interrupt() as interrupt:
        with interrupts_deferred():
            press()
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt), interrupts_deferred():
            press()


def test_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interrupts_deferred():
        press()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_other_threads_are_left_alone() -> None:
    done = []

    def work() -> None:
        with interrupts_deferred():
            done.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [signal.default_int_handler]


@pytest.mark.parametrize("where", ["add_request", "get_outputs", "abort_requests"])
def test_a_batch_is_aborted_and_the_engine_goes_on(rig: Any, bytes_of: Any, where: str) -> None:
    rig.says(bytes_of("abc"))
    call = getattr(rig.client, where)
    calls = []

    def pressed(*arguments: Any) -> Any:
        calls.append(where)
        if len(calls) == 1:
            press()
        return call(*arguments)

    setattr(rig.client, where, pressed)
    params = SamplingParams(stop=["b"])
    with pytest.raises(KeyboardInterrupt):
        rig.llm.generate(["a", "b"], params)
    setattr(rig.client, where, call)
    assert rig.engine.num_requests == 0
    assert not rig.client.running
    assert rig.llm.generate("c", params)[0].outputs[0].text == "a"


def test_another_stream_loses_nothing(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of("abcde"), bytes_of("xyz"))
    stream = rig.llm.stream("p")
    texts = [next(stream).outputs[0].text]
    call = rig.client.get_outputs

    def pressed() -> Any:
        press()
        return call()

    rig.client.get_outputs = pressed
    with pytest.raises(KeyboardInterrupt):
        rig.llm.generate("q")
    rig.client.get_outputs = call
    texts += [each.outputs[0].text for each in stream]
    assert texts == ["a", "b", "c", "d", "e"]
