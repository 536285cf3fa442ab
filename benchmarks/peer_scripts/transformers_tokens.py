"""Runs in our own environment: transformers' `generate`. `transformers_tokens.py MODEL`."""

import os
import sys
from typing import Any

from lines import Lines, timed


def main() -> None:
    """Greedy, float32; all prompts of a question are one batch, so they are equally long."""
    lines = Lines()
    import torch
    import transformers
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()

    def generate(prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
        ids = torch.tensor(prompts)
        output = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new_tokens,
            min_new_tokens=new_tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        tokens: list[list[int]] = output[:, ids.shape[1] :].tolist()
        return tokens

    def ask(question: dict[str, Any]) -> dict[str, Any]:
        return timed(generate, question["prompts"], question["new_tokens"])

    with torch.inference_mode():
        generate([[504, 3575, 282]], 1)
        lines.answer(ask, version=transformers.__version__)


if __name__ == "__main__":
    main()
