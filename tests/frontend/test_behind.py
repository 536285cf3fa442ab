"""A front end that is behind: several bundles at once bring what they bring one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from framework import OutputKind, RequestOutput, SamplingParams
from framework.frontend.output_batch import ProcessedOutputs
from hookspecs.types.stats import IterationStats

TEXTS = ["abcSTOPde", "\u4f60\u597d, na\u00efve", "\U0001f600 ok", "xyz"]
STEPS = 20


def run(rig: Any, scripts: Sequence[list[int]], kind: OutputKind, groups: Sequence[int]) -> Any:
    """Four requests (of two outputs, with stop strings, with logprobs, plain), of whose bundles
    as many as `groups` says are processed at a time."""
    rig.says(*scripts, chunks=(1, 3, 2))
    ways: list[dict[str, Any]] = [
        {"n": 2, "temperature": 1},
        {"stop": ["STOP", "ve"]},
        {"logprobs": 1, "prompt_logprobs": 1},
        {},
    ]
    for number, way in enumerate(ways):
        rig.engine.add_request(str(number), [9, 8, 7], SamplingParams(output_kind=kind, **way))
    parts: list[ProcessedOutputs] = []
    iterations: list[IterationStats] = []
    for size in [*groups, *[1] * STEPS]:
        if not rig.client.running:
            break
        bundles = [rig.client.get_outputs() for _ in range(size)]
        (part,) = rig.outputs.process_parts(bundles, 100)
        assert len(part.iterations) == size
        names = [output.request_id for output in part.request_outputs]
        assert len(set(names)) == len(names)
        parts.append(part)
        iterations += part.iterations
    assert rig.outputs.num_requests == 0
    return parts, iterations


def total(outputs: Sequence[RequestOutput], kind: OutputKind) -> Any:
    """What a user has of a request in the end, by output."""
    found: dict[int, list[Any]] = {}
    for output in outputs:
        for each in output.outputs:
            mine = found.setdefault(each.index, ["", [], [], None, None, None])
            if kind is not OutputKind.DELTA:
                mine[:3] = ["", [], []]
            mine[0] += each.text
            mine[1] = mine[1] + each.token_ids
            mine[2] = mine[2] + (each.logprobs or [])
            mine[3:] = [each.finish_reason, each.stop_reason, each.cumulative_logprob]
    prompts = [output.prompt_logprobs for output in outputs if output.prompt_logprobs]
    return found, prompts[-1:], outputs[-1].finished, outputs[-1].num_cached_tokens


@given(
    kind=st.sampled_from(OutputKind),
    groups=st.lists(st.integers(1, 6), max_size=8),
    order=st.permutations(range(len(TEXTS))),
)
@settings(deadline=None, max_examples=60)
def test_several_bundles_at_once(
    make: Callable[..., Any],
    bytes_of: Callable[[str], list[int]],
    kind: OutputKind,
    groups: list[int],
    order: list[int],
) -> None:
    scripts = [bytes_of(TEXTS[place]) for place in order]
    single, together = run(make(), scripts, kind, []), run(make(), scripts, kind, groups)
    results = []
    for parts, _ in (single, together):
        given_: dict[str, list[RequestOutput]] = {}
        for output in (each for part in parts for each in part.request_outputs):
            given_.setdefault(output.request_id, []).append(output)
        results.append({name: total(outputs, kind) for name, outputs in given_.items()})
    assert results[0] == results[1]
    # Statistics are those of the bundles, not of the batches.
    for one, other in zip(single[1], together[1], strict=False):
        assert one.num_generation_tokens == other.num_generation_tokens
        assert one.inter_token_latency == other.inter_token_latency
        assert len(one.time_to_first_token) == len(other.time_to_first_token)
        assert one.num_prompt_tokens == other.num_prompt_tokens
    ended = [
        sorted(stats.request_id for i in run_[1] for stats in i.finished)
        for run_ in (single, together)
    ]
    assert ended[0] == ended[1] and len(ended[0]) == 5


def test_delta_of_several_bundles_is_one_output(make: Any, bytes_of: Any) -> None:
    rig = make()
    rig.says(bytes_of("abcdef"))
    rig.engine.add_request("r", [5], SamplingParams(output_kind=OutputKind.DELTA, max_tokens=6))
    bundles = [rig.client.get_outputs() for _ in range(4)]
    (part,) = rig.outputs.process_parts(bundles, 10)
    (output,) = part.request_outputs
    assert (output.outputs[0].text, output.finished) == ("abcd", False)
    (part,) = rig.outputs.process_parts([rig.client.get_outputs()], 10)
    assert part.request_outputs[0].outputs[0].text == "e"


def test_an_end_without_tokens_comes_with_the_tokens_before_it(make: Any, bytes_of: Any) -> None:
    """An error, and a request that the engine core lost; both inside of a character."""
    rig = make()
    rig.says(bytes_of("ab\U0001f600"))
    for name in ("x", "y"):
        rig.engine.add_request(name, [5], SamplingParams(output_kind=OutputKind.DELTA))
    bundles = [rig.client.get_outputs() for _ in range(3)]
    rig.client.errors[0] = "NaN logits"
    rig.client.lost = [1]
    bundles.append(rig.client.get_outputs())
    (part,) = rig.outputs.process_parts(bundles, 10)
    found = {each.request_id: each.outputs[0] for each in part.request_outputs}
    assert {name: (each.text, each.finish_reason) for name, each in found.items()} == {
        "x": ("ab\ufffd", "error"),
        "y": ("ab\ufffd", "abort"),
    }
    assert found["x"].error == "NaN logits"
    assert [len(each.token_ids) for each in found.values()] == [3, 4]
    assert rig.outputs.num_requests == 0


def test_a_request_that_is_aborted_between_two_parts_has_one_last_output(
    make: Any, bytes_of: Any
) -> None:
    rig = make()
    rig.says(bytes_of("abcdef"))
    for name in ("x", "y"):
        rig.engine.add_request(name, [5], SamplingParams(output_kind=OutputKind.DELTA))
    bundles = [rig.client.get_outputs() for _ in range(2)]
    parts = rig.outputs.process_parts(bundles, 1)
    first = next(parts)
    assert [each.request_id for each in first.request_outputs] == ["x"]
    (last,) = rig.outputs.abort(["y"]).request_outputs
    assert (last.outputs[0].text, last.outputs[0].finish_reason) == ("ab", "abort")
    assert [each for part in parts for each in part.request_outputs] == []
