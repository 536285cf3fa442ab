"""Our half of the table of tokens: a process that answers questions as those of peers do.

`python -m benchmarks.own_tokens SETTINGS`, with the settings of `framework.launch` as JSON.
"""

from __future__ import annotations

import importlib.metadata
import sys
from typing import Any

import msgspec

import framework
from benchmarks.peer_scripts.lines import Lines, timed
from framework import SamplingParams


def run() -> None:
    """Greedy, with the prefix cache on, and empty at each question."""
    lines = Lines()
    with framework.launch(msgspec.json.decode(sys.argv[1])) as engine:

        def generate(prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
            params = SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True)
            return [list(one.outputs[0].token_ids) for one in engine.generate(prompts, params)]

        def ask(question: dict[str, Any]) -> dict[str, Any]:
            engine.reset_prefix_cache()
            return timed(generate, question["prompts"], question["new_tokens"])

        generate([[504, 3575, 282]], 1)
        lines.answer(ask, version=importlib.metadata.version("engine-framework"))


if __name__ == "__main__":
    run()
