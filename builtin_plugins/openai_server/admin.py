"""`/admin`: control of the engines, with the option `admin_routes` only.

Each route is one command of `hookspecs.types.commands`; the engine checks and runs it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from builtin_plugins.openai_server.answers import json_answer
from builtin_plugins.openai_server.endpoint import Call, Endpoint
from builtin_plugins.openai_server.errors import ErrorBody
from hookspecs.types import commands
from hookspecs.types.control import EngineState

__all__ = ["ENDPOINTS"]


class WeightsBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /admin/update_weights`."""

    path: Annotated[str, Meta(description="A .safetensors file, or a directory of them.")]
    version: Annotated[str, Meta(max_length=256, description="A label for what is loaded.")] = ""


class AdminAnswer(msgspec.Struct, kw_only=True):
    """What the command gave back."""

    result: Any


class SleepingAnswer(msgspec.Struct, kw_only=True):
    """Answer of `GET /admin/is_sleeping`."""

    is_sleeping: bool
    """Whether any engine sleeps or has not woken up yet."""


def _run(command: str) -> Callable[[Call[Any]], Awaitable[Response]]:
    async def handler(call: Call[Any]) -> Response:
        arguments = {} if call.body is None else msgspec.to_builtins(call.body)
        result = await call.service.engine.command(command, arguments)
        return json_answer(AdminAnswer(result=result))

    return handler


async def is_sleeping(call: Call[None]) -> Response:
    """GET /admin/is_sleeping"""
    result = await call.service.engine.command("get_status", {})
    statuses = result if isinstance(result, list) else [result]
    asleep = (EngineState.SLEEPING, EngineState.WAKING)
    return json_answer(
        SleepingAnswer(is_sleeping=any(status["state"] in asleep for status in statuses))
    )


def _command(name: str, summary: str, body: type[msgspec.Struct]) -> Endpoint:
    return Endpoint(
        "POST",
        f"/admin/{name}",
        _run(name),
        summary,
        body=body,
        answer=AdminAnswer,
        answers={409: ErrorBody},
        admin=True,
    )


ENDPOINTS = (
    _command("pause", "Stop scheduling", commands.Pause),
    _command("resume", "Schedule again", commands.Resume),
    _command("sleep", "Pause and give memory back", commands.Sleep),
    _command("wake_up", "Bring memory back", commands.WakeUp),
    _command("reset_prefix_cache", "Forget cached prefixes", commands.ResetPrefixCache),
    _command("update_weights", "Replace the weights", WeightsBody),
    _command("drain", "Refuse new requests and let the others end", commands.Drain),
    _command("start_profile", "Start recording", commands.StartProfile),
    _command("stop_profile", "Stop recording", commands.StopProfile),
    Endpoint(
        "GET",
        "/admin/status",
        _run("get_status"),
        "State of the engines",
        answer=AdminAnswer,
        admin=True,
    ),
    Endpoint(
        "GET",
        "/admin/is_sleeping",
        is_sleeping,
        "Whether an engine sleeps",
        answer=SleepingAnswer,
        admin=True,
    ),
)
