"""From scripted engine tokens to what users get, through the whole front end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framework.frontend.tokenizer import Tokenizer
from hookspecs.errors import EngineDeadError
from hookspecs.events import OutputReady
from hookspecs.types.outputs import RequestOutput
from hookspecs.types.request import FinishReason
from hookspecs.types.sampling import OutputKind, SamplingParams

EOS = 0


def run(rig: Any, params: SamplingParams, prompt: Any = "hello") -> list[RequestOutput]:
    """All outputs of one request."""
    rig.engine.add_request("r", prompt, params)
    outputs = []
    while rig.engine.has_unfinished_requests():
        outputs += rig.engine.step()
    return outputs


def final(rig: Any, params: SamplingParams, prompt: Any = "hello") -> Any:
    params.output_kind = OutputKind.FINAL_ONLY
    (output,) = run(rig, params, prompt)
    assert output.finished
    return output.outputs[0]


def deltas(rig: Any, params: SamplingParams) -> list[Any]:
    params.output_kind = OutputKind.DELTA
    return [output.outputs[0] for output in run(rig, params)]


# Stop strings


def test_stop_string_over_tokens_leaks_nothing(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of("abcDEFGHIJk"))
    got = deltas(rig, SamplingParams(stop=["DEFGHIJ"]))
    assert [each.text for each in got] == ["a", "b", "c", *[""] * 7]
    assert (got[-1].finish_reason, got[-1].stop_reason) == ("stop", "DEFGHIJ")
    assert rig.client.aborted == [0]


def test_held_back_text_is_given_at_the_end(rig: Any, bytes_of: Any) -> None:
    rig.says([*bytes_of("the DEFG"), EOS])
    got = deltas(rig, SamplingParams(stop="DEFGHIJ"))
    assert [each.text for each in got] == ["t", "h", "e", " ", "", "", "", "", "DEFG"]
    assert (got[-1].finish_reason, got[-1].stop_reason) == ("stop", None)


def test_only_what_may_begin_a_stop_is_held_back(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of("DEFxDE"))
    got = deltas(rig, SamplingParams(stop=["DEFGHIJ" * 20]))
    assert [each.text for each in got] == ["", "", "", "DEFx", "", "DE"]


@pytest.mark.parametrize(
    ("token", "stop", "include", "text"),
    [
        ("...", "..", False, ""),
        ("...", "..", True, ".."),
        ("stop!", "stop", False, ""),
        ("stop!", "stop", True, "stop"),
    ],
)
def test_stop_inside_a_token(
    rig: Any, byte_level: Tokenizer, token: str, stop: str, include: bool, text: str
) -> None:
    ids = byte_level.encode("the") + byte_level.encode(token)
    rig.says(ids)
    rig.client.chunk = lambda: len(ids)
    got = final(rig, SamplingParams(stop=stop, include_stop_str_in_output=include))
    assert (got.text, got.stop_reason) == ("the" + text, stop)


def test_one_cut_for_text_ids_logprobs_and_usage(make: Any, bytes_of: Any) -> None:
    for chunks in ((1,), (3,), (100,)):
        rig = make()
        rig.says(bytes_of("abSTOPcdefg"), chunks=chunks)
        got = final(rig, SamplingParams(stop=["STOP"], logprobs=2))
        assert got.text == "ab"
        assert got.token_ids == bytes_of("abSTOP")
        assert len(got.logprobs) == 6
        assert got.cumulative_logprob == pytest.approx(-3.0)
        (stats,) = rig.recorder.finished
        assert stats.num_generation_tokens == 6
        rig.assert_idle()


def test_min_tokens_hides_early_text_from_stop_strings(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of("xxaxxb"))
    got = final(rig, SamplingParams(stop=["xx"], min_tokens=4))
    assert (got.text, got.token_ids) == ("xxa", bytes_of("xxaxx"))


def test_token_in_token_out_honours_stop(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of("abSTOPcd"))
    params = SamplingParams(stop=["STOP"], output_kind=OutputKind.FINAL_ONLY)
    (output,) = run(rig, params, bytes_of("prompt"))
    assert output.prompt is None
    assert output.outputs[0].token_ids == bytes_of("abSTOP")


def test_stop_hidden_by_an_incomplete_character_is_found_at_the_end(
    rig: Any, bytes_of: Any
) -> None:
    rig.says(bytes_of(b"ab\xf0\x9f"))
    got = final(rig, SamplingParams(stop=["\ufffd"]))
    assert (got.text, got.finish_reason, got.stop_reason) == ("ab", "stop", "\ufffd")


# Stop tokens


@pytest.mark.parametrize("include", [False, True])
def test_stop_token_counts_but_has_no_text(rig: Any, bytes_of: Any, include: bool) -> None:
    ids = bytes_of("abX")
    rig.says([*ids, *bytes_of("more")])
    params = SamplingParams(stop_token_ids=[ids[-1]], include_stop_str_in_output=include)
    got = final(rig, params)
    assert got.text == ("abX" if include else "ab")
    assert got.token_ids == ids
    assert (got.finish_reason, got.stop_reason) == ("stop", ids[-1])


def test_the_models_other_end_tokens_are_no_stop_reason(make: Any, bytes_of: Any) -> None:
    other = bytes_of("Z")[0]
    rig = make(eos=(EOS, other))
    rig.says([*bytes_of("ab"), other])
    got = final(rig, SamplingParams())
    assert (got.text, got.finish_reason, got.stop_reason) == ("ab", "stop", None)
    rig.says([*bytes_of("ab"), other])
    assert final(rig, SamplingParams(stop_token_ids=[other])).stop_reason == other
    rig.says([*bytes_of("ab"), other, other])
    ignored = final(rig, SamplingParams(ignore_eos=True))
    assert (ignored.text, ignored.finish_reason) == ("abZZ", "length")


# Text


def test_emoji_in_a_batch(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of("\U0001f600"), bytes_of("abcd"))
    for name in ("a", "b"):
        rig.engine.add_request(name, "x", SamplingParams(output_kind=OutputKind.DELTA))
    got: dict[str, list[str]] = {"a": [], "b": []}
    while rig.engine.has_unfinished_requests():
        for output in rig.engine.step():
            got[output.request_id].append(output.outputs[0].text)
    assert got == {"a": ["", "", "", "\U0001f600"], "b": ["a", "b", "c", "d"]}


def test_without_detokenizing_there_are_ids_only(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of("abc"))
    got = final(rig, SamplingParams(detokenize=False, logprobs=1))
    assert (got.text, got.token_ids) == ("", bytes_of("abc"))
    assert all(entry.decoded_token is None for each in got.logprobs for entry in each.values())


@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_every_chunking_and_kind_gives_the_same(
    make: Any, byte_level: Tokenizer, data: st.DataObject
) -> None:
    tokenizer = byte_level
    ids = data.draw(st.lists(st.integers(3, tokenizer.vocab_size - 1), min_size=1, max_size=25))
    ids += data.draw(st.sampled_from([[], [EOS]]))
    text = tokenizer.decode(ids[:-1] if ids[-1] == EOS else ids)
    stops = st.lists(
        st.integers(0, max(0, len(text) - 1)).flatmap(
            lambda at: st.integers(1, 3).map(lambda size: text[at : at + size])
        ),
        max_size=2,
    )
    stop = [each for each in data.draw(stops) if each]
    fields: dict[str, Any] = {
        "stop": stop,
        "logprobs": 1,
        "min_tokens": data.draw(st.integers(0, 3)),
        "include_stop_str_in_output": data.draw(st.booleans()),
    }
    results = []
    for chunks in ([1], data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))):
        for kind in OutputKind:
            rig = make()
            rig.says(ids, chunks=chunks)
            outputs = [
                each.outputs[0] for each in run(rig, SamplingParams(output_kind=kind, **fields))
            ]
            if kind is OutputKind.DELTA:
                whole = (
                    "".join(each.text for each in outputs),
                    [token for each in outputs for token in each.token_ids],
                    [entry for each in outputs for entry in each.logprobs or []],
                )
            else:
                whole = (outputs[-1].text, outputs[-1].token_ids, outputs[-1].logprobs or [])
            if kind is OutputKind.CUMULATIVE:
                shown = [each.text for each in outputs]
                assert all(later.startswith(earlier) for earlier, later in pairwise(shown))
            results.append((*whole, outputs[-1].finish_reason, outputs[-1].stop_reason))
            rig.assert_idle()
    assert all(result == results[0] for result in results)
    if results[0][4] is None:
        assert results[0][0] == text
        assert results[0][1] == ids


# n > 1


def test_children_by_index_in_every_kind(make: Any, bytes_of: Any) -> None:
    scripts = [bytes_of("a"), bytes_of("bbb"), bytes_of("cc")]
    rig = make()
    rig.says(*scripts)
    outputs = run(rig, SamplingParams(n=3, output_kind=OutputKind.DELTA))
    assert [[(c.index, c.text) for c in each.outputs] for each in outputs] == [
        [(0, "a"), (1, "b"), (2, "c")],
        [(1, "b"), (2, "c")],
        [(1, "b")],
    ]
    assert [each.finished for each in outputs] == [False, False, True]
    rig.says(*scripts)
    outputs = run(rig, SamplingParams(n=3))
    assert [[c.text for c in each.outputs] for each in outputs] == [
        ["a", "b", "c"],
        ["a", "bb", "cc"],
        ["a", "bbb", "cc"],
    ]
    rig.says(*scripts)
    (output,) = run(rig, SamplingParams(n=3, output_kind=OutputKind.FINAL_ONLY))
    assert [c.text for c in output.outputs] == ["a", "bbb", "cc"]
    assert output.finished
    rig.assert_idle()


def test_abort_of_a_parent_takes_all_children(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of("abcdef"))
    rig.engine.add_request("x", "p", SamplingParams(n=8, output_kind=OutputKind.DELTA))
    rig.engine.step()
    (output,) = rig.engine.abort_request("x")
    assert sorted(rig.client.aborted) == list(range(8))
    assert output.finished
    assert [c.finish_reason for c in output.outputs] == ["abort"] * 8
    assert rig.engine.abort_request(["x", "never"]) == []


def test_failure_while_children_are_submitted_takes_them_back(make: Any) -> None:
    rig = make()
    rig.client.fail_add_at = 3
    with pytest.raises(Exception, match="stopped"):
        rig.engine.add_request("x", "p", SamplingParams(n=8))
    assert rig.engine.num_requests == 0
    assert not rig.client.running


# Ids


def test_id_in_use_is_refused_and_free_after_abort(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of("abc"))
    rig.engine.add_request("x", "p", SamplingParams())
    with pytest.raises(ValueError, match="in use"):
        rig.engine.add_request("x", "p", SamplingParams())
    for _ in range(20):
        rig.engine.abort_request("x")
        rig.engine.add_request("x", "p", SamplingParams(output_kind=OutputKind.FINAL_ONLY))
    outputs = []
    while rig.engine.has_unfinished_requests():
        outputs += rig.engine.step()
    assert [each.outputs[0].text for each in outputs] == ["abc"]


def test_late_rows_do_not_reach_the_next_of_that_id(make: Any, bytes_of: Any) -> None:
    rig = make()
    rig.says(bytes_of("old"), bytes_of("new"))
    rig.client.abort_requests = lambda handles, reason: None
    rig.engine.add_request("x", "p", SamplingParams())
    rig.engine.step()
    rig.engine.abort_request("x")
    rig.engine.add_request("x", "p", SamplingParams(output_kind=OutputKind.FINAL_ONLY))
    outputs = []
    while rig.engine.has_unfinished_requests():
        outputs += rig.engine.step()
    assert [each.outputs[0].text for each in outputs] == ["new"]
    rig.assert_idle()


# What the engine core is told


def test_the_engine_is_told_why_requests_end(make: Any, bytes_of: Any) -> None:
    def adjust(event: OutputReady) -> None:
        if event.output.request_id == "y":
            raise OSError("no audit log")

    rig = make(filters={"adjust_output": adjust})
    rig.says(bytes_of("abcdefgh"))
    for name in "xyz":
        stop = ["b"] if name == "x" else None
        rig.engine.add_request(name, "p", SamplingParams(stop=stop))
    rig.engine.step()
    rig.engine.step()
    rig.engine.abort_request("z")
    assert list(zip(rig.client.aborted, rig.client.reasons, strict=True)) == [
        (1, "error"),
        (0, "stop"),
        (2, "abort"),
    ]
    rig.assert_idle()


def test_outputs_come_before_the_failure_to_tell_the_engine(make: Any, bytes_of: Any) -> None:
    for call in ("step", "submit"):
        rig = make()
        rig.says(bytes_of("abcd"))
        rig.client.fail_abort = True
        rig.engine.add_request("x", "p", SamplingParams(stop=["b"]))
        rig.engine.step()
        (output,) = rig.engine.step()
        assert (output.outputs[0].text, output.outputs[0].finish_reason) == ("a", "stop")
        assert [str(stats.finish_reason) for stats in rig.recorder.finished] == ["stop"]
        assert rig.engine.has_unfinished_requests()
        with pytest.raises(EngineDeadError):
            if call == "step":
                rig.engine.step()
            else:
                rig.engine.add_request("y", "p", SamplingParams())
        assert rig.engine.num_requests == 0


def test_a_batch_that_ended_is_given_though_the_engine_died(make: Any, bytes_of: Any) -> None:
    rig = make()
    rig.says(bytes_of("abcd"))
    rig.client.fail_abort = True
    (output,) = rig.llm.generate("p", SamplingParams(stop=["b"]))
    assert output.outputs[0].text == "a"
    with pytest.raises(EngineDeadError):
        rig.llm.generate("p")


# Errors


def test_engine_error_of_a_request(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of("abc"))
    rig.engine.add_request("x", "p", SamplingParams())
    rig.engine.step()
    rig.client.errors[0] = "NaN logits"
    (output,) = rig.engine.step()
    assert output.finished
    completion = output.outputs[0]
    assert (completion.text, completion.finish_reason, completion.error) == (
        "a",
        "error",
        "NaN logits",
    )
    assert str(rig.recorder.finished[0].finish_reason) == "error"


def test_request_lost_by_the_engine_ends(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of("abc"))
    rig.engine.add_request("x", "p", SamplingParams())
    rig.client.lost = [0]
    outputs = rig.engine.step()
    rig.client.lost = [0]
    outputs += rig.engine.step()
    assert outputs[-1].outputs[0].finish_reason == "abort"


def test_requests_lost_in_a_bundle_without_rows_end(rig: Any) -> None:
    for name in ("x", "y", "z"):
        rig.engine.add_request(name, "p", SamplingParams())
    rig.client.running.clear()
    rig.client.lost = [0, 1, 2]
    reasons = {each.request_id: each.outputs[0].finish_reason for each in rig.engine.step()}
    assert reasons == {"x": "abort", "y": "abort", "z": "abort"}


def test_broken_decoder_ends_only_its_request(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of("abc"))
    rig.engine.add_request("x", "p", SamplingParams(n=2, output_kind=OutputKind.DELTA))
    rig.engine.add_request("y", "p", SamplingParams(output_kind=OutputKind.FINAL_ONLY))

    class Broken:
        def push_many(self, ids: Sequence[int]) -> str:
            raise RuntimeError("decoder bug")

    rig.outputs._groups["x"].outputs[1].detokenizer._decoder = Broken()
    outputs = []
    while rig.engine.has_unfinished_requests():
        outputs += rig.engine.step()
    failed = next(each for each in outputs if each.request_id == "x")
    assert failed.finished
    assert [c.finish_reason for c in failed.outputs] == ["error", "error"]
    assert "decoder bug" in failed.outputs[1].error
    assert sorted(rig.client.aborted) == [0, 1]
    assert [each.outputs[0].text for each in outputs if each.request_id == "y"] == ["abc"]


def test_output_filter(make: Any, bytes_of: Any) -> None:
    def upper(event: OutputReady) -> OutputReady:
        for completion in event.output.outputs:
            completion.text = completion.text.upper()
        return OutputReady(output=event.output)

    rig = make(filters={"adjust_output": upper})
    rig.says(bytes_of("abc"))
    assert final(rig, SamplingParams()).text == "ABC"


@pytest.mark.parametrize("fail_at", ["b", "abc"])
def test_failing_output_filter_fails_its_request_only(
    make: Any, bytes_of: Any, fail_at: str
) -> None:
    def adjust(event: OutputReady) -> None:
        if event.output.request_id == "x" and event.output.outputs[0].text.endswith(fail_at):
            raise OSError("no audit log")

    rig = make(filters={"adjust_output": adjust})
    rig.says(bytes_of("abc"))
    rig.engine.add_request("x", "p", SamplingParams())
    rig.engine.add_request("y", "p", SamplingParams(output_kind=OutputKind.FINAL_ONLY))
    outputs = []
    while rig.engine.has_unfinished_requests():
        outputs += rig.engine.step()
    last = [each for each in outputs if each.request_id == "x"][-1]
    assert last.finished
    assert last.outputs[0].finish_reason == "error"
    assert "no audit log" in last.outputs[0].error
    assert [each.outputs[0].text for each in outputs if each.request_id == "y"] == ["abc"]
    reasons = {stats.request_id: str(stats.finish_reason) for stats in rig.recorder.finished}
    assert reasons == {"x-0-0": "error", "y-0-1": "length"}
    rig.assert_idle()


def endless(event: OutputReady) -> OutputReady:
    return OutputReady(output=msgspec.structs.replace(event.output, finished=False))


def in_place(event: OutputReady) -> None:
    event.output.finished = not event.output.finished


def no_reason(event: OutputReady) -> None:
    for completion in event.output.outputs:
        completion.finish_reason = None


def reason(event: OutputReady) -> None:
    event.output.outputs[-1].finish_reason = "length"


def dropped(event: OutputReady) -> None:
    event.output.outputs.pop()


def renumbered(event: OutputReady) -> None:
    event.output.outputs[0].index = 5


def no_output(event: OutputReady) -> OutputReady:
    return OutputReady(output=None)  # type: ignore[arg-type]


def no_completions(event: OutputReady) -> OutputReady:
    return OutputReady(output=msgspec.structs.replace(event.output, outputs=["x"]))


@pytest.mark.parametrize(
    "change",
    [
        endless,
        in_place,
        no_reason,
        reason,
        dropped,
        renumbered,
        no_output,
        no_completions,
    ],
)
@pytest.mark.parametrize("kind", OutputKind)
def test_a_filter_can_not_change_what_ends(
    make: Any, bytes_of: Any, change: Any, kind: OutputKind
) -> None:
    told: list[Any] = []
    rig = make(filters={"adjust_output": change, "on_plugin_failed": told.append})
    rig.says([*bytes_of("a"), EOS], [*bytes_of("ab"), EOS])
    outputs = run(rig, SamplingParams(n=2, output_kind=kind))
    last = outputs[-1]
    assert last.finished
    assert {each.finish_reason for each in last.outputs} == {"error"}
    assert all("adjust_output" in (each.error or "") for each in last.outputs)
    assert told[0].action == "request failed"
    rig.assert_idle()


# Logprobs


def test_logprob_counts(make: Any, bytes_of: Any) -> None:
    rig = make()
    for k in (0, 1, 5, 20):
        inside, outside = 5, 300
        rig.says([inside, outside])
        first, second = final(rig, SamplingParams(logprobs=k)).logprobs
        assert len(second) == k + 1
        assert len(first) == max(k, 1)
        assert (next(iter(first)), next(iter(second))) == (inside, outside)
        assert first[inside].rank == (1 if k else 99)


def test_byte_tokens_have_safe_strings(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of(b"a\xf0\x9f\x98\x80b\xff\xffc"))
    got = final(rig, SamplingParams(logprobs=0))
    strings = [next(iter(each.values())).decoded_token for each in got.logprobs]
    assert strings == ["a", "", "", "", "\U0001f600", "b", "", "", "c"]


def test_logprob_strings_use_the_prompt_as_context(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of(b"\x80"))
    params = SamplingParams(logprobs=0, output_kind=OutputKind.FINAL_ONLY)
    (output,) = run(rig, params, bytes_of(b"x\xf0\x9f\x98"))
    logprobs = output.outputs[0].logprobs
    assert logprobs is not None
    (entry,) = logprobs
    assert next(iter(entry.values())).decoded_token == "\U0001f600"


def test_prompt_logprobs(rig: Any, bytes_of: Any) -> None:
    prompt = bytes_of("abcd")
    for kind, times in ((OutputKind.DELTA, 1), (OutputKind.CUMULATIVE, 3)):
        rig.says(bytes_of("xyz"))
        outputs = run(rig, SamplingParams(prompt_logprobs=0, output_kind=kind), prompt)
        given_to = [each.prompt_logprobs for each in outputs if each.prompt_logprobs]
        assert len(given_to) == times
        strings = [
            None if each is None else [entry.decoded_token for entry in each.values()]
            for each in given_to[0]
        ]
        assert strings == [None, ["b"], ["c"], ["d"]]


# Statistics


def test_statistics_of_a_request(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of("abc"))
    params = SamplingParams(max_tokens=3, output_kind=OutputKind.FINAL_ONLY)
    rig.engine.add_request("x", [5] * 10, params, tenant="t", labels={"k": "v"}, arrival_time=400.0)
    outputs = []
    while rig.engine.has_unfinished_requests():
        outputs += rig.engine.step()
    (output,) = outputs
    assert output.num_cached_tokens == 2
    assert output.metrics.queue_time == 0.25
    assert output.metrics.last_token_latency == 2.0
    assert output.metrics.time_to_first_token > 0
    (stats,) = rig.recorder.finished
    assert (stats.num_prompt_tokens, stats.num_generation_tokens, stats.num_cached_tokens) == (
        10,
        3,
        2,
    )
    assert (stats.queue_time, stats.prefill_time, stats.decode_time) == (0.25, 0.5, 2.0)
    assert (stats.tenant, stats.labels, stats.max_tokens) == ("t", {"k": "v"}, 3)
    assert stats.e2e_latency > stats.time_to_first_token > 0
    totals = rig.recorder.iterations
    assert sum(each.num_generation_tokens for each in totals) == 3
    assert sum(each.num_prompt_tokens for each in totals) == 10
    assert [each.inter_token_latency for each in totals] == [[], [1.0], [1.0]]


def test_one_record_for_each_child_whatever_ends_it(rig: Any, bytes_of: Any) -> None:
    rig.says(bytes_of("a"), bytes_of("STOP"), bytes_of("cccccc"))
    rig.engine.add_request("x", "p", SamplingParams(n=3, stop=["STOP"]))
    for _ in range(4):
        rig.engine.step()
    rig.engine.abort_request("x")
    reasons = [str(stats.finish_reason) for stats in rig.recorder.finished]
    assert reasons == ["length", "stop", "abort"]


# What the engine core has not taken


def refuse_second(rig: Any, kind: OutputKind) -> tuple[Any, Any]:
    """What the first and the second bundle of a request of two outputs come to, the second of
    which is refused."""
    rig.says([10, 11, 12], [10, 11, 12])
    params = SamplingParams(n=2, max_tokens=3, temperature=1, output_kind=kind)
    rig.engine.add_request("r", "hello", params)
    first = rig.outputs.process(rig.client.get_outputs())
    rig.client.refused[1] = "it sleeps"
    return first, rig.outputs.process(rig.client.get_outputs())


def test_a_request_of_which_nothing_was_given_is_refused_as_a_whole(make: Any) -> None:
    rig = make()
    first, second = refuse_second(rig, OutputKind.FINAL_ONLY)
    assert (first.request_outputs, first.refused) == ([], {})
    assert second.refused == {"r": "it sleeps"}
    (output,) = second.request_outputs
    assert output.finished
    assert [each.finish_reason for each in output.outputs][1] == "error"
    # The engine core is told of the one that it has taken.
    assert second.ended_here == {FinishReason.ERROR: [0]}
    assert len(first.iteration.finished + second.iteration.finished) == 2
    assert rig.outputs.num_requests == 0


@pytest.mark.parametrize("kind", [OutputKind.DELTA, OutputKind.CUMULATIVE])
def test_a_request_of_which_something_was_given_ends_with_an_error(
    make: Any, kind: OutputKind
) -> None:
    rig = make()
    _, second = refuse_second(rig, kind)
    assert second.refused == {}
    (output,) = second.request_outputs
    assert not output.finished
    (refused,) = [each for each in output.outputs if each.index == 1]
    assert (refused.finish_reason, refused.error) == ("error", "it sleeps")
