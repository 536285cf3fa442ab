"""What `transformers` says: greedy tokens of a model, and how clear each choice was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

CLOSE = 1e-4
"""Two best logits nearer than this may come out in either order."""


class Expected(NamedTuple):
    """The reference's continuation of one prompt."""

    token_ids: list[int]
    gaps: list[float]
    """Difference of the two best logits at each step."""


@torch.inference_mode()
def expected_tokens(
    model: torch.nn.Module, prompt: Sequence[int], num_tokens: int, eos: Sequence[int] = ()
) -> Expected:
    """Greedy continuation by `generate`, alone, with its own cache and attention."""
    output = model.generate(
        torch.tensor([list(prompt)]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=num_tokens,
        do_sample=False,
        eos_token_id=list(eos) or None,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_logits=True,
        repetition_penalty=1.0,
    )
    tokens = output.sequences[0, len(prompt) :].tolist()
    best = [torch.topk(step[0].float(), 2).values.tolist() for step in output.logits]
    return Expected(tokens, [first - second for first, second in best])


class Comparison:
    """Compares many outputs and counts the accepted near ties."""

    def __init__(self) -> None:
        self.near_ties: list[str] = []

    def check(self, name: str, expected: Expected, actual: Sequence[int]) -> None:
        """Equal token for token, up to the first near tie of the reference."""
        for position, (want, got) in enumerate(zip(expected.token_ids, actual, strict=False)):
            if want == got:
                continue
            gap = expected.gaps[position]
            assert gap < CLOSE, (
                f"{name}: token {position} is {got}, the reference has {want} by {gap:.6f}; "
                f"{list(actual)} for {expected.token_ids}"
            )
            self.near_ties.append(f"{name} at {position} (gap {gap:.1e})")
            return
        assert len(actual) == len(expected.token_ids), (
            f"{name}: {len(actual)} tokens, the reference has {len(expected.token_ids)}"
        )

    def report(self, title: str) -> None:
        """Print what was accepted (shown with pytest -rP, and on failure)."""
        print(f"{title}: {len(self.near_ties)} near ties accepted {self.near_ties}")
