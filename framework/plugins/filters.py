"""What a filter may return, hook by hook.

Each function takes the value before a filter is called and gives the judge of its result, which
says what is wrong with it, or None. A judge remembers what must stay, so that a filter that
changes its argument in place and returns None is caught too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from hookspecs.config import EngineConfig
from hookspecs.events import ConfigResolved, OutputReady, RequestReceived, RequestRejected
from hookspecs.types.outputs import CompletionOutput, RequestOutput

__all__ = ["Judge", "judge_config", "judge_output", "judge_request"]

Judge: TypeAlias = Callable[[Any], str | None]


def judge_config(before: ConfigResolved) -> Judge:
    """A valid configuration that loads the same plugins: these are loaded already."""
    return lambda after: None if after is before else _wrong_config(before, after)


def _wrong_config(before: ConfigResolved, after: Any) -> str | None:
    if not isinstance(after, ConfigResolved):
        return _wrong_type("ConfigResolved or None", after)
    if not isinstance(after.config, EngineConfig):
        return f"config is {after.config!r}; it must be an EngineConfig"
    try:
        # Constructing a struct checks neither types nor bounds; converting does.
        msgspec.convert(msgspec.to_builtins(after.config), EngineConfig, strict=True)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        return f"the configuration it returned is not valid: {error}"
    old, new = before.config.plugins, after.config.plugins
    for field in ("activation", "enable", "block", "required"):
        if getattr(old, field) != getattr(new, field):
            return (
                f"it changed plugins.{field} from {getattr(old, field)!r} to "
                f"{getattr(new, field)!r}; it is too late, plugins are loaded"
            )
    return None


def judge_request(before: RequestReceived) -> Judge:
    """The same request, changed, or its rejection."""
    request_id, pools = before.request_id, before.pooling is not None

    def judge(after: Any) -> str | None:
        if isinstance(after, RequestRejected):
            return None
        if not isinstance(after, RequestReceived):
            return _wrong_type("RequestReceived, RequestRejected or None", after)
        return _changed("the request id", request_id, after.request_id) or _changed(
            "whether it is a pooling request", pools, after.pooling is not None
        )

    return judge


def judge_output(before: OutputReady) -> Judge:
    """An output of the same request that ends what the output before ended, and nothing else:
    whoever waits for it relies on that."""
    request_id, finished = before.output.request_id, before.output.finished
    reasons = _finish_reasons(before.output)

    def judge(after: Any) -> str | None:
        if not isinstance(after, OutputReady):
            return _wrong_type("OutputReady or None", after)
        output: Any = after.output
        if not isinstance(output, RequestOutput):
            return _wrong_type("OutputReady with a RequestOutput", output)
        completions: Any = output.outputs
        if not isinstance(completions, list) or not all(
            isinstance(each, CompletionOutput) for each in completions
        ):
            return f"outputs is {completions!r}; it must be a list of CompletionOutput"
        return (
            _changed("the request id", request_id, output.request_id)
            or _changed("finished", finished, output.finished)
            or _changed("the finish reasons by index", reasons, _finish_reasons(output))
        )

    return judge


def _finish_reasons(output: RequestOutput) -> list[tuple[int, str | None]]:
    """In the order of the outputs, which is that of their indexes."""
    return [(each.index, each.finish_reason) for each in output.outputs]


def _changed(what: str, before: object, after: object) -> str | None:
    return None if before == after else f"it changed {what} from {before!r} to {after!r}"


def _wrong_type(allowed: str, value: object) -> str:
    return f"it returned {type(value).__name__} {value!r}; it must return {allowed}"
