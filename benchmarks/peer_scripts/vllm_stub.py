"""An executor for vLLM that runs no model, to measure the engine around it.

Each scheduled request whose prompt is complete gets a token at once: no worker process, no
tensors, no sampling. Ids go round, so that detokenizing does its usual work.
"""

import time
from concurrent.futures import Future
from typing import Any

import torch
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput
from vllm.v1.worker.worker_base import CompilationTimes

LAYERS = 30
IDS = [500 + number * 7919 % 40000 for number in range(4096)]


class StubExecutor(Executor):  # type: ignore[misc]
    """For `distributed_executor_backend`."""

    spent_s = 0.0
    """What the stub itself took, of all its calls."""

    @classmethod
    def supports_async_scheduling(cls) -> bool:
        """As the executors that run a model."""
        return True

    def _init_executor(self) -> None:
        self._left: dict[str, int] = {}
        """Prompt tokens that are not yet computed, of requests that have some."""
        self._steps = 0
        self._output: Any = None

    def collective_rpc(self, method: Any, *_: Any, **__: Any) -> list[Any]:
        """What the engine asks of workers at the start."""
        return [self._told(method)]

    def _told(self, method: Any) -> Any:
        if method == "get_kv_cache_spec":
            spec = FullAttentionSpec(
                block_size=self.cache_config.block_size,
                num_kv_heads=3,
                head_size=64,
                dtype=torch.float32,
            )
            return {f"model.layers.{layer}.self_attn.attn": spec for layer in range(LAYERS)}
        return {
            "get_supported_kv_cache_layouts": ["LBNHC", "LBHNC"],
            "determine_available_memory": 64 << 30,
            "compile_or_warm_up_model": CompilationTimes(language_model=0.0, encoder=0.0),
            "get_supported_tasks": ("generate",),
        }.get(method)

    def check_health(self) -> None:
        """It is well."""

    def shutdown(self) -> None:
        """Nothing to end."""

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        """The tokens come from `sample_tokens`, as with a model."""
        begin = time.perf_counter()
        result = None
        if scheduler_output.num_scheduled_tokens:
            self._output = self._tokens(scheduler_output)
        else:
            result = EMPTY_MODEL_RUNNER_OUTPUT
        StubExecutor.spent_s += time.perf_counter() - begin
        return _given(result, non_block)

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        """Of the step before."""
        output, self._output = self._output, None
        return _given(output, non_block)

    def _tokens(self, step: Any) -> Any:
        scheduled, left = step.num_scheduled_tokens, self._left
        for request in step.scheduled_new_reqs:
            left[request.req_id] = len(request.prompt_token_ids) - request.num_computed_tokens
        self._steps += 257
        names = list(scheduled)
        sampled = [[IDS[self._steps + at & 4095]] for at in range(len(names))]
        if left:
            for at, name in enumerate(names):
                if name in left:
                    left[name] -= scheduled[name]
                    if left[name] > 0:
                        sampled[at] = []
                    else:
                        del left[name]
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: at for at, name in enumerate(names)},
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )


def _given(value: Any, non_block: bool) -> Any:
    if not non_block:
        return value
    future: Future[Any] = Future()
    future.set_result(value)
    return future
