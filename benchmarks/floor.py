"""The shortest time that a workload can take on this machine, from what the machine can do.

Measured are the rate of matrix products, in float32 and in int8, and the bandwidth of reading
memory. The floor of a step is its products at that rate, or the reading of all weights at that
bandwidth, whichever takes longer; plus reading the KV cache once; plus the arithmetic of
attention at two thirds of the rate of float32 products, as its exponentials and sums take their
share. Logits count only where a token is sampled.
"""

from __future__ import annotations

import time
import warnings
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from benchmarks.machine import cores
from benchmarks.measure import spread
from benchmarks.model import Format, Shape, small_model
from benchmarks.workloads import Workload

__all__ = ["Machine", "Step", "decode_steps", "floor_s", "main", "measure_machine", "prefill_step"]

ROWS = 512
ATTENTION_SHARE = 2 / 3
_READ_BYTES = 1 << 30


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine can do, with all its cores."""

    float_per_s: float
    """Operations (a multiplication and an addition are two) of float32 products of 512 rows."""
    int8_per_s: float
    """The same for int8 weights with activations that are quantized on the way."""
    read_bytes_per_s: float


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One pass through the model."""

    tokens: int
    sampled: int
    """Of them those with logits."""
    read_tokens: int
    """Whose keys and values come from the KV cache; what requests share counts once."""
    attended: int
    """Pairs of a token and one that it attends to, itself included."""


def prefill_step(workload: Workload) -> Step:
    """All prompts at once; what they share is computed once, and nothing need be read."""
    shared, own, count = workload.shared, workload.own, workload.requests
    return Step(
        tokens=shared + count * own,
        sampled=count,
        read_tokens=0,
        attended=_causal(shared) + count * (own * shared + _causal(own)),
    )


def decode_steps(workload: Workload) -> Iterator[Step]:
    """All requests in each step, to the last token."""
    count = workload.requests
    for done in range(1, workload.new_tokens):
        own = workload.own + done
        yield Step(
            tokens=count,
            sampled=count,
            read_tokens=workload.shared + count * own,
            attended=count * (workload.shared + own),
        )


def floor_s(machine: Machine, shape: Shape, weights: Format, steps: Sequence[Step]) -> float:
    """Seconds for the steps, one after the other."""
    rate = machine.int8_per_s if weights.integer else machine.float_per_s
    reading = (weights.layer_bytes + weights.head_bytes) / machine.read_bytes_per_s
    total = 0.0
    for step in steps:
        products = 2 * (step.tokens * shape.layer_weights + step.sampled * shape.head_weights)
        attention = 4 * step.attended * shape.layers * shape.heads * shape.head_dim
        total += max(products / rate, reading)
        total += step.read_tokens * shape.kv_bytes / machine.read_bytes_per_s
        total += attention / (ATTENTION_SHARE * machine.float_per_s)
    return total


def _causal(length: int) -> int:
    return length * (length + 1) // 2


def measure_machine(shape: Shape, repeats: int = 7) -> Machine:
    """A second or two, on all cores, by the libraries that are here."""
    import torch

    torch.set_num_threads(cores())
    with torch.inference_mode():
        sizes = shape.products()
        operations = sum(2 * ROWS * rows * columns for rows, columns in sizes)
        weights = [torch.randn(rows, columns) * 0.02 for rows, columns in sizes]
        inputs = [torch.randn(ROWS, columns) for _, columns in sizes]
        plain = _fastest(
            [way(torch, weights, inputs) for way in (_products, _packed_products)], repeats
        )
        ways = [way(torch, weights, inputs) for way in (_dynamic_products, _bare_products)]
        integer = _fastest(ways, repeats)
        data = torch.ones(_READ_BYTES // 4)
        reading = _fastest([lambda: data.sum()], repeats)
    return Machine(
        float_per_s=operations / plain,
        int8_per_s=operations / integer,
        read_bytes_per_s=_READ_BYTES / reading,
    )


def _products(torch: Any, weights: list[Any], inputs: list[Any]) -> Callable[[], object]:
    linear = torch.nn.functional.linear
    return lambda: [linear(x, w) for x, w in zip(inputs, weights, strict=True)]


def _packed_products(torch: Any, weights: list[Any], inputs: list[Any]) -> Callable[[], object]:
    """oneDNN's, with weights in the order that it likes best."""
    packed = [torch.ops.mkldnn._reorder_linear_weight(w, ROWS) for w in weights]
    linear = torch.ops.mkldnn._linear_pointwise
    return lambda: [linear(x, w, None, "none", [], "") for x, w in zip(inputs, packed, strict=True)]


def _dynamic_products(torch: Any, weights: list[Any], inputs: list[Any]) -> Callable[[], object]:
    """float32 in and out, quantized on the way."""
    torch.backends.quantized.engine = "onednn"
    zeros = [torch.zeros(w.shape[0], dtype=torch.long) for w in weights]
    scales = [w.abs().amax(dim=1).double() / 127 for w in weights]
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # deprecated, yet fastest
        packed = [
            torch.ops.quantized.linear_prepack(
                torch.quantize_per_channel(w, scale, zero, 0, torch.qint8), None
            )
            for w, scale, zero in zip(weights, scales, zeros, strict=True)
        ]
    product = torch.ops.quantized.linear_dynamic
    return lambda: [product(x, w, True) for x, w in zip(inputs, packed, strict=True)]


def _bare_products(torch: Any, weights: list[Any], inputs: list[Any]) -> Callable[[], object]:
    """int8 in, int32 out."""
    left = [(x * 40).round().clamp(-127, 127).to(torch.int8) for x in inputs]
    right = [(w * 1000).round().clamp(-127, 127).to(torch.int8).t() for w in weights]
    return lambda: [torch._int_mm(x, w) for x, w in zip(left, right, strict=True)]


def _fastest(ways: Sequence[Callable[[], object]], repeats: int) -> float:
    """Seconds of the fastest way: its median of repeats after one that warms up."""
    times = []
    for way in ways:
        way()
        taken = []
        for _ in range(repeats):
            begin = time.perf_counter()
            way()
            taken.append(time.perf_counter() - begin)
        times.append(spread(taken).median)
    return min(times)


def main(argv: Sequence[str] = ()) -> int:
    """Print what the machine can do, and the floor of each workload."""
    from benchmarks.tables import Table, add_arguments
    from benchmarks.workloads import WORKLOADS

    parser = ArgumentParser(prog="python -m benchmarks floor", description=__doc__)
    add_arguments(parser, repeats=7, peers=False)
    arguments = parser.parse_args(argv)
    model = small_model()
    machine = measure_machine(model.shape, arguments.repeats)
    print(describe(machine))
    columns = ("workload", "weights", "prefill, tokens/s", "decode, tokens/s", "output tokens/s")
    table = Table("floor", columns, arguments)
    for workload in WORKLOADS.values():
        if workload.name == "W5":  # it depends on arrivals
            continue
        for weights in model.formats.values():
            first = floor_s(machine, model.shape, weights, [prefill_step(workload)])
            rest = floor_s(machine, model.shape, weights, list(decode_steps(workload)))
            output = workload.requests * workload.new_tokens
            rates = (
                workload.requests * workload.prompt_tokens / first,
                (output - workload.requests) / rest,
                output / (first + rest),
            )
            cells = (workload.name, weights.name, *(f"{rate:.0f}" for rate in rates))
            values = dict(zip(("prefill", "decode", "output"), rates, strict=True))
            table.row(cells, {"workload": workload.name, "weights": weights.name, **values})
    return 0


def describe(machine: Machine) -> str:
    """A line for people."""
    return (
        f"the machine: float32 products {machine.float_per_s / 1e9:.0f} GFLOP/s, int8 "
        f"{machine.int8_per_s / 1e9:.0f} GOP/s (of {ROWS} rows), memory reads "
        f"{machine.read_bytes_per_s / 1e9:.1f} GB/s"
    )
