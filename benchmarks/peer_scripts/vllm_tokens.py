"""Runs in vLLM's environment: tokens for prompts of ids. `vllm_tokens.py MODEL [compiled]`."""

import sys
from typing import Any

from lines import Lines, timed

PROMPT = [504, 3575, 282, 4649, 314]


def main() -> None:
    """Greedy, with the prefix cache on, and empty at each question."""
    lines = Lines()
    import vllm
    from vllm import LLM, SamplingParams, TokensPrompt

    llm = LLM(
        model=sys.argv[1],
        dtype="float32",
        max_model_len=2048,
        enforce_eager="compiled" not in sys.argv[2:],
        disable_log_stats=True,
        seed=0,
    )

    def generate(prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
        params = SamplingParams(temperature=0.0, max_tokens=new_tokens, ignore_eos=True)
        given = [TokensPrompt(prompt_token_ids=prompt) for prompt in prompts]
        outputs = llm.generate(given, params, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    def ask(question: dict[str, Any]) -> dict[str, Any]:
        llm.reset_prefix_cache()
        return timed(generate, question["prompts"], question["new_tokens"])

    generate([PROMPT], 1)
    lines.answer(ask, version=vllm.__version__)


if __name__ == "__main__":
    main()
