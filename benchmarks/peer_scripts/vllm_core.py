"""Runs in vLLM's environment: the time of a decode step of its engine core, in this process.

`vllm_core.py MODEL` has the stub in place of the model; `vllm_core.py MODEL real` runs the model,
which is then a tiny one. A question has `running`, `prompt_tokens`, `warm_up` and `steps`; the
answer has the seconds of each step, and of them what the stub took. Prompts come in as many
lengths as a block has tokens, so that in each step a part of the requests completes a block.
"""

import gc
import sys
import time
from random import Random
from typing import Any

from lines import Lines

BLOCK = 16
MOST = 1024
"""Requests at once."""


def main() -> None:
    """Answer questions."""
    lines = Lines()
    import vllm
    from vllm import SamplingParams
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine import EngineCoreRequest
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.executor.uniproc_executor import UniProcExecutor
    from vllm_stub import StubExecutor

    real = "real" in sys.argv[2:]
    executor = UniProcExecutor if real else StubExecutor
    settings = EngineArgs(
        model=sys.argv[1],
        skip_tokenizer_init=real,
        dtype="float32",
        max_model_len=2048,
        block_size=BLOCK,
        max_num_seqs=MOST,
        max_num_batched_tokens=160 * MOST,
        distributed_executor_backend="uni" if real else executor,
        async_scheduling=False,
        disable_log_stats=True,
        enable_prefix_caching=True,
        enforce_eager=True,
        seed=0,
    )
    core = EngineCore(settings.create_engine_config(), executor, log_stats=False)
    serial = 0

    def add(draw: Random, length: int) -> str:
        nonlocal serial
        serial += 1
        request = EngineCoreRequest(
            request_id=f"r{serial}",
            prompt_token_ids=draw.choices(range(20, 500), k=length),
            mm_features=None,
            sampling_params=SamplingParams(temperature=0.0, max_tokens=1800, ignore_eos=True),
            pooling_params=None,
            arrival_time=time.time(),
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
        )
        core.add_request(core.preprocess_add_request(request)[0])
        return request.request_id

    def ask(question: dict[str, Any]) -> dict[str, Any]:
        draw, running = Random(serial), question["running"]
        length = question["prompt_tokens"]
        names = [add(draw, length + number % BLOCK) for number in range(running)]
        scheduler = core.scheduler
        while scheduler.waiting or any(not each.num_output_tokens for each in scheduler.running):
            core.step_fn()
        if len(scheduler.running) != running:
            raise RuntimeError(f"{len(scheduler.running)} of {running} requests run")
        for _ in range(question["warm_up"]):
            core.step_fn()
        gc.collect()
        seconds, stub = [], []
        for _ in range(question["steps"]):
            before, begin = StubExecutor.spent_s, time.perf_counter()
            core.step_fn()
            core.post_step(True)
            seconds.append(time.perf_counter() - begin)
            stub.append(StubExecutor.spent_s - before)
        core.abort_requests(names)
        core.step_fn()
        return {"seconds": seconds, "stub": stub}

    lines.answer(ask, version=vllm.__version__)


if __name__ == "__main__":
    main()
