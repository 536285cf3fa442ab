"""What leaves the code of a plugin is an Exception that tells why, or ends the task."""

from __future__ import annotations

import asyncio

import pytest

from builtin_plugins.openai_server.failures import contained


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), asyncio.CancelledError()])
def test_what_would_end_the_event_loop_is_the_cause_of_an_exception(error: BaseException) -> None:
    async def fail() -> None:
        raise error

    async def main() -> None:
        with pytest.raises(RuntimeError, match=f"{type(error).__name__} was raised") as failed:
            await contained(fail)
        assert failed.value.__cause__ is error

    asyncio.run(main())


def test_exceptions_and_interrupts_are_left_as_they_are() -> None:
    failure = ValueError("why")

    async def fail() -> None:
        raise failure from KeyError("before")

    async def interrupt() -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        with pytest.raises(ValueError, match="why") as failed:
            await contained(fail)
        assert failed.value is failure and isinstance(failure.__cause__, KeyError)

    asyncio.run(main())
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(contained(interrupt))


def test_a_cancelled_task_ends() -> None:
    async def main() -> None:
        task = asyncio.create_task(contained(asyncio.Event().wait))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
