"""`framework bench serve` comes to an end whatever the server does, and says what that was."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from framework.bench import run
from framework.cli.main import main
from tests.cli.scripted_http import CLOSE, STALL, Call, answer, events, running

HEAD, FIRST, *_ = events({"choices": [{"index": 0, "text": "a", "finish_reason": None}]})
UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
SILENCE = "nothing came for 0.2 s (--timeout)"


class Forever(bytes):
    """Comes again and again."""


GARBAGE = Forever(b"x" * (1 << 18))


@pytest.fixture(params=["asyncio", "uvloop"], autouse=True)
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both event loops: uvloop is used only where it is installed."""
    if request.param == "asyncio":
        monkeypatch.setattr(run, "loop_factory", lambda: None)


def played(pieces: Sequence[Any]) -> Iterator[Any]:
    """The pieces of an answer, some of them without end."""
    for piece in pieces:
        yield piece
        while isinstance(piece, Forever):
            yield piece


def bench(
    pieces: Sequence[Any], capsys: pytest.CaptureFixture[str], *argv: str
) -> tuple[dict[str, Any], str]:
    """The report of three requests that are answered so, and what is said of them."""
    given = ("--model", "m", "--requests", "3", "--concurrency", "2", "--timeout", "0.2", *argv)

    def script(call: Call) -> Any:
        return played(pieces)

    with running(script) as server:
        assert main(["bench", "serve", "--url", server.url, "--json", *given]) == 1
    found = capsys.readouterr()
    return json.loads(found.out), found.err


@pytest.mark.parametrize(
    ("pieces", "failure"),
    [
        ([STALL], {"kind": "timeout", "status": None, "message": SILENCE}),
        ([HEAD, STALL], {"kind": "timeout", "status": 200, "message": SILENCE}),
        ([HEAD, FIRST, STALL], {"kind": "timeout", "status": 200, "message": SILENCE}),
        ([b"HTTP/1.1 200 OK\r\nx: ", STALL], {"kind": "timeout", "status": None}),
        ([HEAD, FIRST, CLOSE], {"message": "the connection was closed within the answer"}),
        ([UNTIL_CLOSED, FIRST, CLOSE], {"message": "the stream ended without [DONE]"}),
        (
            [UNTIL_CLOSED, GARBAGE],
            {"message": "a line of the stream has more than 16777216 bytes"},
        ),
        ([GARBAGE], {"kind": "disconnect", "status": None}),
        (
            [b"HTTP/1.1 200 OK\r\nx: ", GARBAGE],
            {"message": "the head of the answer has more than 1048576 bytes"},
        ),
        ([b"HTTP/1.1 500 X\r\n\r\n", GARBAGE], {"kind": "status", "status": 500}),
        (answer({"error": "no"}, status=500), {"kind": "status", "status": 500, "message": "no"}),
    ],
)
def test_every_request_ends(
    pieces: Sequence[Any], failure: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    report, said = bench(pieces, capsys)
    assert (report["sent"], report["completed"], report["failed"]) == (3, 0, 3)
    [found] = report["errors"]
    assert {key: found[key] for key in failure} == failure
    assert said.startswith("framework: error: 3 of 3 requests failed\n      3 ")
    assert found["message"] in said


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ([b"HTTP/1.1 200 OK\r\n\r\n{", STALL], SILENCE),
        ([b"HTTP/1.1 200 OK\r\n\r\n", GARBAGE], "the answer has more than 16777216 bytes"),
    ],
)
def test_answers_in_one_piece_end_too(
    pieces: Sequence[Any], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report, said = bench(pieces, capsys, "--no-stream")
    assert report["failed"] == 3
    assert reason in said


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ([STALL], "0.2 s (--timeout)"),
        ([UNTIL_CLOSED, Forever(b"x")], "no whole answer to /v1/models in 0.2 s (--timeout)"),
        ([CLOSE], "the connection was closed before the answer"),
        (answer({"error": "no"}, status=500), "answers 500 to /v1/models"),
    ],
)
def test_the_list_of_models_is_not_waited_for_for_ever(
    pieces: Sequence[Any], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def script(call: Call) -> Any:
        return played(pieces)

    with running(script) as server:
        assert main(["bench", "serve", "--url", server.url, "--timeout", "0.2"]) == 1
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith("framework: error: ")
    assert reason in found.err
