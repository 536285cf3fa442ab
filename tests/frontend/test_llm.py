"""`LLM`: batches, conversations and streams."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from framework.frontend.llm import LLM
from hookspecs.errors import EngineDeadError, InvalidRequestError
from hookspecs.types.sampling import OutputKind, SamplingParams


def test_outputs_come_in_the_order_of_the_prompts(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of("aaaa"), bytes_of("b"), bytes_of("cc"))
    outputs = rig.llm.generate(["one", [5, 6], {"prompt": "three"}], SamplingParams(max_tokens=9))
    assert [each.outputs[0].text for each in outputs] == ["aaaa", "b", "cc"]
    assert [each.prompt for each in outputs] == ["one", None, "three"]
    assert all(each.finished for each in outputs)


@pytest.mark.parametrize("prompt", ["one", [5, 6, 7], {"prompt_token_ids": [5]}], ids=str)
def test_one_prompt_is_a_batch_of_one(rig: Any, prompt: Any) -> None:
    assert len(rig.llm.generate(prompt)) == 1


@pytest.mark.parametrize(
    ("prompts", "where"),
    [
        (["ok", [5] * 500, "ok"], "prompt 1"),
        (["ok", ""], "prompt 1"),
        ([[5], []], "prompt 1"),
        ([[]], "empty"),
        ([""], "empty"),
        ("", "empty"),
        ([], "empty"),
        (["ok", 5], "prompt 1"),
        ([5, "a"], r"\[1\]"),
        (None, "prompts"),
        ([None], r"prompt\[0\]"),
    ],
    ids=str,
)
def test_one_bad_prompt_refuses_all(rig: Any, prompts: Any, where: str) -> None:
    with pytest.raises(InvalidRequestError, match=where):
        rig.llm.generate(prompts, SamplingParams(max_tokens=2))
    assert rig.client.requests == []
    assert len(rig.llm.generate("still works")) == 1


def test_params_and_priority_for_each(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of("abcdef"))
    params = [SamplingParams(max_tokens=1), SamplingParams(max_tokens=3)]
    outputs = rig.llm.generate(["a", "b"], params, priority=[4, -4], tenant="t", cache_salt="s")
    assert [each.outputs[0].text for each in outputs] == ["a", "abc"]
    assert [request.priority for request in rig.client.requests] == [4, -4]
    assert {(request.tenant, request.cache_salt) for request in rig.client.requests} == {("t", "s")}
    assert params[0].output_kind is OutputKind.CUMULATIVE
    for wrong in ({"params": params[:1]}, {"priority": [1, 2, 3]}, {"params": "x"}):
        with pytest.raises(InvalidRequestError):
            rig.llm.generate(["a", "b"], **wrong)


def test_a_deadline_goes_with_every_request(rig: Any) -> None:
    rig.llm.generate(["a", "b"], deadline=9.5)
    rig.llm.chat([{"role": "user", "content": "a"}], deadline=7.0)
    list(rig.llm.stream("a", deadline=8.0))
    rig.llm.generate("a")
    assert [request.deadline for request in rig.client.requests] == [9.5, 9.5, 7.0, 8.0, None]
    with pytest.raises(InvalidRequestError, match="deadline"):
        rig.llm.generate("a", deadline=-1.0)


def test_progress_bar(rig: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rig.llm.generate(["a", "b"], progress=True)
    shown = capsys.readouterr()
    assert "2/2" in shown.err
    assert shown.out == ""


def test_chat(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of("hi"))
    one = [{"role": "user", "content": "a"}]
    (output,) = rig.llm.chat(one)
    assert (output.prompt, output.outputs[0].text) == ("<user>a<assistant>", "hi")
    two = rig.llm.chat([one, [{"role": "system", "content": "b"}]], add_generation_prompt=False)
    assert [each.prompt for each in two] == ["<user>a", "<system>b"]
    with pytest.raises(InvalidRequestError, match="prompt 1"):
        rig.llm.chat([one, [{"role": "user", "content": None}]])
    with pytest.raises(InvalidRequestError, match="messages is empty"):
        rig.llm.chat([])


def test_stream(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of("abc"))
    outputs = list(rig.llm.stream("p", SamplingParams()))
    assert [each.outputs[0].text for each in outputs] == ["a", "b", "c"]
    assert [each.finished for each in outputs] == [False, False, True]


def test_stream_checks_at_once_and_submits_when_read(rig: Any) -> None:
    with pytest.raises(InvalidRequestError):
        rig.llm.stream("")
    rig.llm.stream("never read")
    assert rig.client.requests == []


def test_closing_a_stream_aborts_it(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of("abcdefgh"))
    stream = rig.llm.stream("p", SamplingParams(n=8))
    next(stream)
    stream.close()
    assert sorted(rig.client.aborted) == list(range(8))


def test_streams_and_batches_interleave(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of("abcde"), bytes_of("xy"), bytes_of("123"))
    stream = rig.llm.stream("p")
    texts = [next(stream).outputs[0].text]
    (output,) = rig.llm.generate("q")
    other = rig.llm.stream("r")
    texts.append(next(stream).outputs[0].text)
    assert [each.outputs[0].text for each in other] == ["1", "2", "3"]
    texts += [each.outputs[0].text for each in stream]
    assert output.outputs[0].text == "xy"
    assert "".join(texts) == "abcde"


def test_interrupt_aborts_all_and_goes_on_up(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of("abc"))
    rig.client.interrupt = True
    with pytest.raises(KeyboardInterrupt):
        rig.llm.generate(["a", "b"])
    assert rig.client.aborted == [0, 1]
    rig.client.interrupt = False
    assert rig.llm.generate("c")[0].outputs[0].text == "abc"


def test_dead_engine_is_told(make: Any) -> None:
    rig = make()
    rig.client.dead = True
    with pytest.raises(EngineDeadError):
        rig.llm.generate(["a", "b"])
    with pytest.raises(EngineDeadError):
        next(rig.llm.stream("a"))
    assert rig.engine.num_requests == 0


def test_one_failing_request_leaves_the_batch_alone(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of("abc"))
    rig.client.errors[1] = "bad row"
    outputs = rig.llm.generate(["a", "b", "c"])
    assert [each.outputs[0].finish_reason for each in outputs] == ["length", "error", "length"]
    assert outputs[1].outputs[0].error == "bad row"


def test_shutdown_and_prefix_cache(make: Any) -> None:
    with make().llm as llm:
        assert llm.reset_prefix_cache()
        assert llm.default_params() == SamplingParams()
        assert llm.tokenizer is not None
    llm.shutdown()


def test_import_is_light() -> None:
    code = (
        "import sys, framework.frontend.llm; "
        "print([name for name in ('torch', 'transformers', 'rich') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_a_configuration_is_no_engine() -> None:
    with pytest.raises(TypeError, match=r"framework\.launch"):
        LLM({"model": {"name": "x"}})
