"""Runs in llama.cpp's environment: tokens for prompts of ids, by its C interface.

All prompts are prefilled in slices, then each step decodes one token of every sequence in one
batch; greedy. What prompts share is computed once and copied to all sequences, as a prefix cache
would do. `llama_cpp_tokens.py FILE.gguf`.
"""

import ctypes
import os
import sys
from typing import Any

import llama_cpp as llama
import numpy as np
from lines import Lines, timed

SLICE = 2048
"""Tokens of a batch."""


class Batch:
    """Tokens on their way into a call of the library."""

    def __init__(self) -> None:
        self.raw = llama.llama_batch_init(SLICE, 0, 1)
        self.count = 0
        self.wanted: list[tuple[int, int]] = []
        """Rows whose logits are wanted, with their sequences."""

    def add(self, token: int, position: int, sequence: int, *, wanted: bool) -> None:
        """One more; there is room."""
        row = self.count
        self.raw.token[row], self.raw.pos[row] = token, position
        self.raw.n_seq_id[row], self.raw.seq_id[row][0] = 1, sequence
        self.raw.logits[row] = wanted
        if wanted:
            self.wanted.append((row, sequence))
        self.count += 1


class Session:
    """Sequences of one shape: memory for them is made once."""

    def __init__(self, model: Any, sequences: int, length: int) -> None:
        params = llama.llama_context_default_params()
        params.n_ctx = sequences * (-(-length // 32) * 32)
        params.n_batch, params.n_ubatch, params.n_seq_max = SLICE, 512, sequences
        params.n_threads = params.n_threads_batch = len(os.sched_getaffinity(0))
        params.kv_unified = sequences == 1
        self.context = llama.llama_init_from_model(model, params)
        self.memory = llama.llama_get_memory(self.context)
        self.words = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
        self.batch = Batch()

    def generate(self, prompts: list[list[int]], new_tokens: int, shared: int) -> list[list[int]]:
        """Greedy ids of each prompt; the first `shared` are equal in all."""
        llama.llama_memory_clear(self.memory, True)
        outputs: list[list[int]] = [[] for _ in prompts]
        if shared:
            for position, token in enumerate(prompts[0][:shared]):
                self._add(token, position, 0, False, outputs)
            self._flush(outputs)
            for sequence in range(1, len(prompts)):
                llama.llama_memory_seq_cp(self.memory, 0, sequence, -1, -1)
        for sequence, prompt in enumerate(prompts):
            for position in range(shared, len(prompt)):
                last = position == len(prompt) - 1
                self._add(prompt[position], position, sequence, last, outputs)
        self._flush(outputs)
        for step in range(new_tokens - 1):
            for sequence, prompt in enumerate(prompts):
                self._add(outputs[sequence][-1], len(prompt) + step, sequence, True, outputs)
            self._flush(outputs)
        return outputs

    def _add(self, token: int, position: int, sequence: int, wanted: bool, outputs: Any) -> None:
        self.batch.add(token, position, sequence, wanted=wanted)
        if self.batch.count == SLICE:
            self._flush(outputs)

    def _flush(self, outputs: list[list[int]]) -> None:
        batch = self.batch
        if not batch.count:
            return
        batch.raw.n_tokens = batch.count
        code = llama.llama_decode(self.context, batch.raw)
        if code:
            raise RuntimeError(f"llama_decode: {code}")
        for row, sequence in batch.wanted:
            logits = llama.llama_get_logits_ith(self.context, row)
            best = np.ctypeslib.as_array(logits, (self.words,)).argmax()
            outputs[sequence].append(int(best))
        batch.count = 0
        batch.wanted.clear()


def main() -> None:
    """Answer questions."""
    lines = Lines()
    quiet = llama.llama_log_callback(lambda *_: None)  # kept: the library calls it until the end
    llama.llama_log_set(quiet, ctypes.c_void_p(0))
    llama.llama_backend_init()
    params = llama.llama_model_default_params()
    model = llama.llama_model_load_from_file(sys.argv[1].encode(), params)
    if not model:
        raise RuntimeError(f"{sys.argv[1]}: not loaded")
    sessions: dict[tuple[int, int], Session] = {}

    def ask(question: dict[str, Any]) -> dict[str, Any]:
        prompts, new_tokens = question["prompts"], question["new_tokens"]
        # Room for the whole output, also where only the first token is asked for.
        shape = len(prompts), len(prompts[0]) + question["room"]
        if shape not in sessions:
            for session in sessions.values():
                llama.llama_free(session.context)
            sessions.clear()
            sessions[shape] = Session(model, *shape)
        return timed(sessions[shape].generate, prompts, new_tokens, question["shared"])

    Session(model, 1, 64).generate([[504, 3575, 282]], 1, 0)
    lines.answer(ask, version=llama.__version__)


if __name__ == "__main__":
    main()
