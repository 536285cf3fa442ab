"""Tokens a second of the real small model: ours beside peers, and beside the floor.

Each engine has a process of its own, and they take turns: a repeat of ours, a repeat of each
peer. Ratios are of neighbours. In float32, the tokens of single streams are compared with those
of transformers' `generate`.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec

from benchmarks.engine_process import EngineProcess, our_tokens, peer_process
from benchmarks.floor import (
    Machine,
    decode_steps,
    describe,
    floor_s,
    measure_machine,
    prefill_step,
)
from benchmarks.measure import LoadWatch, ratios, show, spread
from benchmarks.model import MODEL, Format, Model, float32_gguf, small_model, w8a8_directory
from benchmarks.peers import find_peer, how_to_get
from benchmarks.tables import Table, add_arguments
from benchmarks.workloads import WORKLOADS, Workload

__all__ = ["main"]

OURS = "ours"
MEASURED = ("W1", "W2", "W3", "W4")
QUANTIZATION = {"float32": None, "int8": "int8", "int4": "int4", "gguf": "gguf"}
PEERS_OF = {
    "float32": ("vllm", "llama", "transformers"),
    "int8": ("vllm",),
    "int4": ("llama",),
    "gguf": ("llama",),
}
"""int8: weights and activations by vLLM. int4: the GGUF file as it is, mostly Q4_1."""
_KV_BYTES = 2 << 30
_WARM_TOKENS = 8


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A repeat of one engine."""

    first_s: float
    """To the first token alone; for single streams, else 0."""
    all_s: float
    tokens: list[list[int]]


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A rate that a workload gives."""

    name: str
    count: int
    """Tokens of it."""
    first: bool
    """Of the time to the first token; else of the rest, or where that is not known of all."""

    def rate(self, first_s: float, all_s: float) -> float:
        """Tokens/s."""
        return self.count / (first_s if self.first else all_s - first_s)


def figures(workload: Workload) -> list[Figure]:
    """Batches give output tokens/s; a single stream gives prefill and decode."""
    if workload.requests > 1:
        count = workload.requests * workload.new_tokens
        return [Figure(name="output", count=count, first=False)]
    found = [Figure(name="prefill", count=workload.prompt_tokens, first=True)]
    if workload.new_tokens > 8:  # fewer are there to be compared only
        found.append(Figure(name="decode", count=workload.new_tokens - 1, first=False))
    return found


def floor_times(
    machine: Machine, model: Model, weights: Format, workload: Workload
) -> tuple[float, float]:
    """`first_s` and `all_s` of an engine that reaches the floor."""
    first = floor_s(machine, model.shape, weights, [prefill_step(workload)])
    rest = floor_s(machine, model.shape, weights, list(decode_steps(workload)))
    return (first if workload.requests == 1 else 0.0), first + rest


def main(argv: Sequence[str] = ()) -> int:
    """Print a table for each format."""
    parser = ArgumentParser(prog="python -m benchmarks tokens", description=__doc__)
    parser.add_argument("--workloads", default=",".join(MEASURED), metavar="NAME,…")
    parser.add_argument("--formats", default=",".join(QUANTIZATION), metavar="NAME,…")
    parser.add_argument("--only", metavar="NAME,…", help="of the peers; default: all installed")
    parser.add_argument("--no-ours", action="store_true", help="peers alone")
    parser.add_argument(
        "--compiled", action="store_true", help="vLLM compiles the model: up to two minutes more"
    )
    add_arguments(parser, repeats=5)
    arguments = parser.parse_args(argv)
    names = _chosen(parser, arguments.workloads, MEASURED)
    arguments.workloads = [WORKLOADS[name] for name in names]
    model, failed = small_model(), False
    machine = measure_machine(model.shape)
    print(describe(machine))
    for name in _chosen(parser, arguments.formats, tuple(QUANTIZATION)):
        try:
            with ExitStack() as stack:
                engines = list(_engines(stack, name, model, arguments))
                _measure(name, model, machine, arguments, engines)
        except RuntimeError as error:
            print(f"{name} is not measured: {error}")
            failed = True
        print()
    return int(failed)


def _chosen(parser: ArgumentParser, text: str, known: Sequence[str]) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in known]:
        parser.error(f"{unknown[0]!r}: there are {', '.join(known)}")
    return names


def _engines(
    stack: ExitStack, weights: str, model: Model, arguments: Any
) -> Iterator[EngineProcess]:
    if not arguments.no_ours:
        settings = {
            "model": {
                "name": MODEL,
                "max_model_len": 2048,
                "quantization": QUANTIZATION[weights],
            },
            "cache": {"kv_bytes": _KV_BYTES},
            "stats": {"loggers": []},
            "plugins": {"activation": "none"},
        }
        yield stack.enter_context(our_tokens(OURS, settings))
    wanted = arguments.only.split(",") if arguments.only else PEERS_OF[weights]
    for name in PEERS_OF[weights]:
        if name not in wanted:
            continue
        peer = find_peer(name, arguments.peers)
        if peer is None:
            print(how_to_get(name))
            continue
        if name == "vllm":
            path = w8a8_directory(model) if weights == "int8" else model.directory
            more = ["compiled"] if arguments.compiled else []
        elif name == "llama":
            path, more = float32_gguf(model) if weights == "float32" else model.gguf, []
        elif not any(workload.requests == 1 for workload in arguments.workloads):
            continue
        else:
            path, more = model.directory, []
        script = f"{name}_tokens.py" if name != "llama" else "llama_cpp_tokens.py"
        yield stack.enter_context(peer_process(peer, script, str(path), *more))


def _measure(
    weights: str, model: Model, machine: Machine, arguments: Any, engines: list[EngineProcess]
) -> None:
    peers = [engine for engine in engines if engine.name != OURS]
    columns = [weights, "ours", "of the floor"]
    for peer in peers:
        columns += [peer.name, f"ours / {peer.name}"]
    told = {peer.name: str(peer.facts["version"]) for peer in peers}
    starts = ", ".join(f"{each.name} {each.facts['start_s']:.1f}" for each in engines)
    print(f"tokens/s; seconds from the start of the process to the first token: {starts}")
    table = Table("tokens", columns, arguments, peers=told)
    notes = []
    for workload in arguments.workloads:
        taking = [each for each in engines if each.name != "transformers" or workload.requests == 1]
        with LoadWatch(f"{workload.name} in {weights}") as watch:
            asked = _repeat(workload, taking, arguments.repeats)
        if workload.requests == 1 and weights == "float32":
            notes += _compared(workload, asked)
        best = floor_times(machine, model, model.formats[weights], workload)
        for figure in figures(workload):
            rates = {
                name: [figure.rate(one.first_s, one.all_s) for one in repeats]
                for name, repeats in asked.items()
            }
            values = {"weights": weights, "workload": workload.name, "figure": figure.name}
            facts = {
                **values,
                "rates": rates,
                "floor": figure.rate(*best),
                "machine_rates": machine,
                "foreign_cores": watch.foreign,
            }
            cells = [f"{workload.name} {figure.name}", *_cells(rates, figure.rate(*best), peers)]
            table.row(cells, facts)
    print("\n".join(["", *notes]) if notes else "")


def _repeat(
    workload: Workload, engines: Sequence[EngineProcess], repeats: int
) -> dict[str, list[Asked]]:
    """Engines in turn."""
    for engine in engines:
        _ask(engine, workload, workload.prompts(variant=1), _WARM_TOKENS)
    found: dict[str, list[Asked]] = {engine.name: [] for engine in engines}
    prompts = workload.prompts()
    for _ in range(repeats):
        for engine in engines:
            first = 0.0
            if workload.requests == 1:
                first = _ask(engine, workload, prompts, 1)["seconds"]
            answer = _ask(engine, workload, prompts, workload.new_tokens)
            one = Asked(first_s=first, all_s=answer["seconds"], tokens=answer["tokens"])
            if any(len(tokens) != workload.new_tokens for tokens in one.tokens):
                raise RuntimeError(f"{engine.name} gave outputs of {workload.name} that are short")
            found[engine.name].append(one)
    return found


def _ask(
    engine: EngineProcess, workload: Workload, prompts: list[list[int]], new_tokens: int
) -> dict[str, Any]:
    return engine.ask(
        {
            "prompts": prompts,
            "new_tokens": new_tokens,
            "shared": workload.shared,
            "room": workload.new_tokens,
        }
    )


def _cells(rates: dict[str, list[float]], best: float, peers: Sequence[EngineProcess]) -> list[str]:
    ours = rates.get(OURS)
    cells = ["", ""]
    if ours is not None:
        cells = [show(spread(ours)), f"{spread(ours).median / best:.0%}"]
    for peer in peers:
        theirs = rates.get(peer.name)
        cells.append("" if theirs is None else show(spread(theirs)))
        both = theirs is not None and ours is not None
        cells.append(show(ratios(ours, theirs), 2) if ours and theirs and both else "")
    return cells


def _compared(workload: Workload, asked: dict[str, list[Asked]]) -> list[str]:
    """A line for each engine that is not transformers."""
    if "transformers" not in asked:
        return []
    oracle = asked["transformers"][0].tokens[0]
    lines = []
    for name, repeats in asked.items():
        if name == "transformers":
            continue
        equal = min(_equal(one.tokens[0], oracle) for one in repeats)
        told = "all" if equal == len(oracle) else f"the first {equal}"
        lines.append(f"{workload.name}, {name}: {told} of {len(oracle)} tokens equal transformers'")
    return lines


def _equal(tokens: Sequence[int], others: Sequence[int]) -> int:
    """How many are equal from the beginning."""
    pairs = zip(tokens, others, strict=True)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), len(tokens))
