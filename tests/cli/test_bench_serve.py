"""`framework bench serve` against a server with scripted answers."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from framework.cli.main import main
from tests.cli.scripted_http import CLOSE, STALL, Call, ScriptedHttp, answer, events, running

MODELS = {"object": "list", "data": [{"id": "first"}, {"id": "second"}]}
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def text(value: str, **more: Any) -> dict[str, Any]:
    """A chunk of a completion."""
    return {"choices": [{"index": 0, "text": value, "finish_reason": None}], **more}


def delta(**fields: Any) -> dict[str, Any]:
    """A chunk of a chat completion."""
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}], "usage": None}


COMPLETION = events(text(" a"), text(" b"), text(" c"), {"choices": [], "usage": USAGE})


def scripted(*pieces: Any) -> Any:
    """A script: the models, and one answer for everything else."""

    def script(call: Call) -> Sequence[Any]:
        return answer(MODELS) if call.path == "/v1/models" else pieces

    return script


def bench(
    server: ScriptedHttp, capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0
) -> Any:
    """The report."""
    assert main(["bench", "serve", "--url", server.url, "--json", *argv]) == code
    found = capsys.readouterr()
    assert "Traceback" not in found.err
    return json.loads(found.out)


def posted(server: ScriptedHttp) -> list[Call]:
    """The requests, without the question for the models."""
    return [call for call in server.calls if call.method == "POST"]


def test_streams_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    with running(scripted(*COMPLETION)) as server:
        report = bench(server, capsys, "--requests", "5", "--concurrency", "2", "--warmup", "3")
    assert report["settings"]["model"] == "first"
    assert (report["sent"], report["completed"], report["failed"]) == (5, 5, 0)
    assert (report["prompt_tokens"], report["output_tokens"]) == (35, 15)
    assert report["tokens_per_chunk"] == 1.0
    assert report["without_usage"] == 0
    assert (report["ttft_ms"]["count"], report["e2e_ms"]["count"]) == (5, 5)
    assert report["itl_ms"]["count"] == 10  # all tokens but the first of each
    assert report["delay_ms"] is None
    assert report["errors"] == []
    assert report["output_tokens_per_s"] == pytest.approx(15 / report["wall_s"])
    calls = posted(server)
    assert len(calls) == 8
    assert {call.path for call in calls} == {"/v1/completions"}
    body = calls[0].body
    assert body["stream_options"] == {"include_usage": True}
    assert (body["model"], body["max_tokens"], body["temperature"]) == ("first", 128, 0)
    assert "ignore_eos" not in body
    assert len({call.body["prompt"] for call in calls}) == 8


def test_chat(capsys: pytest.CaptureFixture[str]) -> None:
    stream = events(
        delta(role="assistant", content=""),
        delta(reasoning_content="hm"),
        delta(content="a"),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 4}},
    )
    argv = ("--endpoint", "chat", "--requests", "1", "--model", "m", "--api-key", "k")
    with running(scripted(*stream)) as server:
        report = bench(server, capsys, *argv, "--ignore-eos", "--temperature", "0.5")
    [call] = server.calls  # a model that is named is not asked for
    assert call.path == "/v1/chat/completions"
    assert call.headers["authorization"] == "Bearer k"
    assert call.body["messages"][0]["role"] == "user"
    assert (call.body["ignore_eos"], call.body["seed"]) == (True, 0)
    # Neither the chunk that opens nor the one that ends has a token.
    assert report["tokens_per_chunk"] == 2.0
    assert report["itl_ms"]["count"] == 2


def test_answers_in_one_piece(capsys: pytest.CaptureFixture[str]) -> None:
    whole = answer({"choices": [{"text": "abc", "finish_reason": "length"}], "usage": USAGE})
    with running(scripted(*whole)) as server:
        report = bench(server, capsys, "--no-stream", "--requests", "2")
    assert "stream" not in posted(server)[0].body
    assert report["output_tokens"] == 6
    assert (report["ttft_ms"], report["itl_ms"], report["tokens_per_chunk"]) == (None, None, None)
    assert report["e2e_ms"]["count"] == 2


def test_tokens_of_each_chunk(capsys: pytest.CaptureFixture[str]) -> None:
    usages = [{"prompt_tokens": 1, "completion_tokens": count} for count in (1, 1, 5)]
    stream = events(*(text("x", usage=usage) for usage in usages))
    with running(scripted(*stream)) as server:
        report = bench(server, capsys, "--chunk-usage", "--requests", "1")
    assert posted(server)[0].body["stream_options"]["continuous_usage_stats"] is True
    assert report["output_tokens"] == 5
    assert report["tokens_per_chunk"] == 2.5  # the chunk without a new token is none
    assert report["itl_ms"]["count"] == 4


@pytest.mark.parametrize(("cached", "warned"), [(0, False), (2, False), (6, True), (None, False)])
def test_random_prompts_that_the_server_has_in_its_cache(
    capsys: pytest.CaptureFixture[str], cached: int | None, warned: bool
) -> None:
    usage = {**USAGE, "prompt_tokens_details": {"cached_tokens": cached}}
    with running(scripted(*events(text("a"), {"choices": [], "usage": usage}))) as server:
        report = bench(server, capsys, "--requests", "2")
        assert main(["bench", "serve", "--url", server.url, "--requests", "2"]) == 0
    assert report["cached_tokens"] == 2 * (cached or 0)
    said = "12 of 14 prompt tokens were in the server's prefix cache"
    assert (said in capsys.readouterr().out) is warned


def test_without_usage_chunks_are_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    with running(scripted(*events(text("a"), text("")))) as server:
        report = bench(server, capsys, "--requests", "2")
        assert main(["bench", "serve", "--url", server.url, "--requests", "2"]) == 0
    assert (report["without_usage"], report["output_tokens"]) == (2, 4)
    assert "2 answers had no usage" in capsys.readouterr().out


def test_open_loop(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("--rate", "2000", "--requests", "20", "--max-concurrency", "2")
    with running(scripted(*COMPLETION)) as server:
        report = bench(server, capsys, *argv)
    assert report["completed"] == 20
    assert report["delay_ms"]["count"] == 20
    assert report["settings"]["concurrency"] is None


def test_a_series_of_rates(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("--requests", "4", "--warmup", "2", "--model", "m")
    with running(scripted(*COMPLETION)) as server:
        given = bench(server, capsys, *argv, "--rate", "1000,2000")
        assert len(server.calls) == 2 + 4 + 4  # warmed up once
        of_capacity = bench(server, capsys, *argv, "--rate", "50%,95%")
    assert [report["settings"]["rate"] for report in given] == [1000, 2000]
    assert len({call.body["prompt"] for call in server.calls[:10]}) == 10
    capacity, *rest = of_capacity
    assert capacity["settings"]["rate"] is None
    assert [report["settings"]["rate"] for report in rest] == [
        pytest.approx(share * capacity["requests_per_s"]) for share in (0.5, 0.95)
    ]
    assert [report["completed"] for report in of_capacity] == [4, 4, 4]


def test_a_server_without_capacity_gets_no_open_loop(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("--requests", "2", "--model", "m", "--rate", "50%")
    with running(scripted(*answer({"error": "no"}, status=500))) as server:
        reports = bench(server, capsys, *argv, code=1)
    assert [report["failed"] for report in reports] == [2]


def test_failures_of_all_loops_are_counted_together(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--requests", "3", "--model", "m", "--rate", "1000,2000", "--json"]
    with running(scripted(*answer({"error": "no"}, status=500))) as server:
        assert main(["bench", "serve", "--url", server.url, *argv]) == 1
    found = capsys.readouterr()
    assert [report["failed"] for report in json.loads(found.out)] == [3, 3]
    assert found.err == "framework: error: 6 of 6 requests failed\n      6 status 500: no\n"


def test_the_table_of_a_series(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--requests", "2", "--rate", "80%"]
    with running(scripted(*COMPLETION)) as server:
        assert main(["bench", "serve", "--url", server.url, *argv]) == 0
    out = capsys.readouterr().out
    assert "closed loop, 16 clients" in out
    assert out.count("open loop") == 1
    assert "2 / 0" in out


def test_a_mixed_load_is_reported_apart(capsys: pytest.CaptureFixture[str]) -> None:
    def script(call: Call) -> Sequence[Any]:
        usage = {"prompt_tokens": len(call.body["prompt"]), "completion_tokens": 2}
        return events(text("a"), text("b"), {"choices": [], "usage": usage})

    argv = ("--model", "m", "--requests", "40", "--prompts", "tokens", "--prompt-tokens", "8")
    mixed = (*argv, "--long-prompts", "0.25", "--long-tokens", "100")
    with running(script) as server:
        first, again = bench(server, capsys, *mixed), bench(server, capsys, *mixed)
        plain = bench(server, capsys, *argv)
    lengths = [len(call.body["prompt"]) for call in server.calls]
    assert sorted(lengths[:40]) == sorted(lengths[40:80])
    long = lengths[:40].count(100)
    assert 0 < long < 20
    found = first["by_prompt"]
    assert (found["short"]["completed"], found["long"]["completed"]) == (40 - long, long)
    assert found["short"]["itl_ms"]["count"] == 40 - long
    assert again["settings"] == first["settings"]
    assert (plain["by_prompt"], plain["settings"]["long_tokens"]) == ({}, None)


def test_goodput(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("--requests", "3", "--model", "m")
    with running(scripted(*COMPLETION)) as server:
        easy = bench(server, capsys, *argv, "--good-ttft", "1e6", "--good-itl", "1e6")
        hard = bench(server, capsys, *argv, "--good-e2e", "1e-6")
        none = bench(server, capsys, *argv)
    assert easy["goodput_per_s"] == easy["requests_per_s"]
    assert easy["settings"]["objectives"] == {"ttft_ms": 1e6, "itl_ms": 1e6}
    assert hard["goodput_per_s"] == 0
    assert none["goodput_per_s"] is None


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    with running(scripted(*COMPLETION)) as server:
        assert main(["bench", "serve", "--url", server.url, "--requests", "2"]) == 0
    out = capsys.readouterr().out
    assert "first at http://127.0.0.1:" in out
    assert "closed loop, 16 clients" in out
    for row in ("time to first token", "inter-token latency", "end to end", "p99", "nearest rank"):
        assert row in out


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        (
            answer({"error": {"message": "no  such\nfield"}}, status=400),
            {"kind": "status", "status": 400, "message": "no such field"},
        ),
        (answer({"detail": "Not Found"}, status=404), {"status": 404, "message": "Not Found"}),
        (answer(b"<h1>oops</h1>", status=502), {"status": 502, "message": "<h1>oops</h1>"}),
        (answer(b"", status=500), {"status": 500, "message": "(no body)"}),
        (
            answer(b"<html>", kind="text/html"),
            {"kind": "answer", "message": "content type text/html, not text/event-stream"},
        ),
        (
            events(text("a"), {"error": {"message": "failed", "code": 500}}),
            {"kind": "event", "message": "failed"},
        ),
        (
            events(text("a"), done=False),
            {"kind": "answer", "message": "the stream ended without [DONE]"},
        ),
        (
            [events()[0], b"9\r\ndata: {x\n\r\n", *events()[1:]],
            {"kind": "answer", "status": 200},
        ),
        (
            [*events(text("a"))[:2], CLOSE],
            {"kind": "disconnect", "message": "the connection was closed within the answer"},
        ),
        (
            [CLOSE],
            {
                "kind": "disconnect",
                "status": None,
                "message": "the connection was closed before the answer",
            },
        ),
        ([b"SSH-2.0-OpenSSH\r\n"], {"kind": "disconnect", "status": None}),
    ],
)
def test_errors_are_counted_by_kind(
    pieces: list[Any], error: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with running(scripted(*pieces)) as server:
        report = bench(server, capsys, "--requests", "3", "--concurrency", "2", code=1)
    assert (report["completed"], report["failed"], report["unfinished"]) == (0, 3, 0)
    [found] = report["errors"]
    assert found["count"] == 3
    assert {key: found[key] for key in error} == error


def test_a_run_in_which_some_requests_failed_has_failed(capsys: pytest.CaptureFixture[str]) -> None:
    def script(call: Call) -> Sequence[Any]:
        if call.method == "GET":
            return answer(MODELS)
        turn = len(posted(server))
        return answer({"error": f"number {turn}"}, status=429) if turn != 2 else COMPLETION

    with running(script) as server:
        assert main(["bench", "serve", "--url", server.url, "--requests", "14"]) == 1
    found = capsys.readouterr()
    assert "1 / 13 / 0" in found.out
    assert "framework: error: 13 of 14 requests failed\n      1 status 429: number " in found.err
    assert "and 8 other errors, see --json" in found.err
    assert "status 429" not in found.out


def test_an_answer_that_ends_with_the_connection(capsys: pytest.CaptureFixture[str]) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    body = b'data: {"choices":[{"text":"a"}]}\n\ndata: [DONE]\n\n'
    with running(scripted(head, body, CLOSE)) as server:
        report = bench(server, capsys, "--requests", "3", "--concurrency", "1")
    assert report["completed"] == 3


def test_ctrl_c_prints_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    def script(call: Call) -> Sequence[Any]:
        if len(posted(server)) < 3:
            return COMPLETION
        return [lambda: os.kill(os.getpid(), signal.SIGINT), STALL]

    before = signal.getsignal(signal.SIGINT)
    with running(script) as server:
        report = bench(server, capsys, "--model", "m", "--concurrency", "1", code=130)
    assert report["interrupted"] is True
    assert (report["completed"], report["failed"], report["unfinished"]) == (2, 0, 1)
    assert signal.getsignal(signal.SIGINT) is before


def test_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    assert main(["bench", "serve", "--url", url]) == 1
    assert f"no answer from {url}" in capsys.readouterr().err
    argv = ["bench", "serve", "--url", url, "--model", "m", "--requests", "2", "--json"]
    assert main(argv) == 1
    report = json.loads(capsys.readouterr().out)
    assert [error["kind"] for error in report["errors"]] == ["connect"]


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        (answer({"error": "no"}, status=401), "answers 401 to /v1/models"),
        (answer(b"<html>", kind="text/html"), "lists no model"),
        (answer({"data": []}), "lists no model"),
    ],
)
def test_another_server(pieces: list[Any], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with running(lambda call: pieces) as server:
        assert main(["bench", "serve", "--url", server.url]) == 1
    assert said in capsys.readouterr().err


def test_the_path_of_the_url(capsys: pytest.CaptureFixture[str]) -> None:
    with running(scripted(*COMPLETION)) as server:
        argv = ["--model", "m", "--requests", "1", "--json"]
        assert main(["bench", "serve", "--url", f"{server.url}/api/v1/", *argv]) == 0
    assert posted(server)[0].path == "/api/v1/completions"


def test_prompts(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("--requests", "9", "--prompts", "tokens", "--prompt-tokens", "3-5", "--model", "m")
    with running(scripted(*COMPLETION)) as server:
        for seed in ("1", "1", "2"):
            bench(server, capsys, *argv, "--seed", seed)
    prompts = [json.dumps(call.body["prompt"]) for call in server.calls]
    assert sorted(prompts[:9]) == sorted(prompts[9:18])
    assert not set(prompts[:9]) & set(prompts[18:])
    assert {len(json.loads(prompt)) for prompt in prompts} == {3, 4, 5}


def test_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "asked.jsonl"
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    file.write_text(f'{{"prompt": "one", "x": 1}}\n\n{json.dumps({"messages": messages})}\n')
    argv = ("--requests", "3", "--concurrency", "1", "--dataset", str(file))
    with running(scripted(*COMPLETION)) as server:
        bench(server, capsys, *argv, "--endpoint", "chat")
        user = {"role": "user", "content": "one"}
        assert [call.body["messages"] for call in posted(server)] == [[user], messages, [user]]
        file.write_text('{"prompt": [1, 2]}')
        bench(server, capsys, *argv)
        assert posted(server)[-1].body["prompt"] == [1, 2]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        ("\n", "has no lines"),
        ('{"prompt": "a"}\n{', ":2 is no JSON"),
        ("[]", ":1 is no JSON object"),
        ('{"messages": []}', ":1 has not what the endpoint needs: `prompt`"),
    ],
)
def test_datasets_that_are_none(
    content: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "asked.jsonl"
    if content is not None:
        file.write_text(content)
    assert main(["bench", "serve", "--model", "m", "--dataset", str(file)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--url", "localhost:8000"], "it must be http://HOST:PORT"),
        (["--url", "http://h:x"], "--url is 'http://h:x'"),
        (["--max-concurrency", "3"], "give --rate"),
        (["--endpoint", "chat", "--prompts", "tokens"], "a chat has no token ids"),
        (["--no-stream", "--chunk-usage"], "leave --no-stream out"),
        (["--no-stream", "--good-ttft", "3"], "--good-ttft is of streams"),
        (["--dataset", "f", "--long-prompts", "0.5"], "leave --dataset out"),
        (["--long-prompts", "1.5"], "'1.5' is no number from 0 to 1"),
        (["--rate", "5,x%"], "'x' is no number above 0"),
        (["--api-key", "a\nb"], "--api-key has characters"),
        (["--concurrency", "0"], "'0' is no whole number of 1 or more"),
        (["--rate", "nan"], "'nan' is no number above 0"),
        (["--timeout", "0"], "'0' is no number above 0"),
        (["--temperature", "-1"], "'-1' is no number of 0 or more"),
        (["--prompt-tokens", "5-3"], "the second number is below the first"),
    ],
)
def test_wrong_arguments(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "serve", "--model", "m", *argv]) == 2
    assert said in capsys.readouterr().err


def test_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith(("framework.bench", "httptools"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "httptools", None)
    assert main(["bench", "serve"]) == 1
    assert "engine-framework[bench]" in capsys.readouterr().err
