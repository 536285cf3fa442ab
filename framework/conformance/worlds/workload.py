"""Seeded random workloads for a mini kernel: who arrives when, asks for what, gives up when."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from framework.conformance.worlds.mini_kernel import MiniKernel

__all__ = ["Arrival", "Trace", "Workload", "play", "random_sizes", "seeds", "workload"]

TENANTS = ("red", "green", "blue")


class Arrival(NamedTuple):
    """One request."""

    step: int
    """Before which step it arrives."""
    prompt: list[int]
    max_tokens: int
    priority: int
    tenant: str
    deadline: float | None
    """Seconds of the kernel's clock, which advances by one a step."""
    abort_after: int | None
    """Steps until its user gives up; None: never."""
    computes_whole_prompt: bool


class Workload(NamedTuple):
    """Requests in the order of arrival."""

    seed: int
    arrivals: list[Arrival]


Trace = list[tuple[tuple[str, int], ...]]
"""Of each step the requests that ran, with the tokens that each computed, in row order."""


def workload(
    seed: int, *, requests: int = 24, longest: int = 24, aborts: bool = True, deadlines: bool = True
) -> Workload:
    """Bursts and pauses, shared prefixes, priorities, tenants, deadlines, aborts."""
    rng = random.Random(seed)
    prefixes = [[7, *[rng.randrange(1, 9)] * 8] for _ in range(3)]
    arrivals, step = [], 0
    for number in range(requests):
        step += rng.choice((0, 0, 0, 1, 1, 2, 6))
        own = [1000 + 40 * number + position for position in range(rng.randint(1, longest))]
        shared = rng.choice(prefixes) if rng.random() < 0.4 else []
        arrivals.append(
            Arrival(
                step=step,
                prompt=[*shared, *own][:longest],
                max_tokens=rng.randint(1, 8),
                priority=rng.randint(-2, 2),
                tenant=rng.choice(TENANTS),
                deadline=step + rng.uniform(0, 30) if deadlines and rng.random() < 0.3 else None,
                abort_after=rng.randint(0, 12) if aborts and rng.random() < 0.2 else None,
                computes_whole_prompt=rng.random() < 0.1,
            )
        )
    return Workload(seed, arrivals)


def random_sizes(seed: int) -> dict[str, int]:
    """Sizes of a kernel in which such a workload is short of blocks, slots or budget."""
    rng = random.Random(seed ^ 0x5EED)
    return {
        "num_blocks": rng.randint(10, 40),
        "max_num_seqs": rng.randint(1, 6),
        "max_num_batched_tokens": rng.choice((1, 3, 8, 16, 64)),
        "long_prefill_token_threshold": rng.choice((0, 0, 5)),
    }


def play(kernel: MiniKernel, load: Workload, *, limit: int = 4000, prefix: str = "r") -> Trace:
    """Step until all have ended. AssertionError, naming the seed, when that takes more than
    `limit` steps or a check of the kernel fails. Ids are `prefix` and the running number."""
    trace: Trace = []
    kernel.on_scheduled = lambda output: trace.append(tuple(kernel.scheduled(output).items()))
    coming, aborts = iter(enumerate(load.arrivals)), {}
    following = next(coming, None)
    try:
        for step in range(limit):
            while following is not None and following[1].step <= step:
                number, arrival = following
                request = kernel.add(
                    arrival.prompt,
                    arrival.max_tokens,
                    request_id=f"{prefix}{number}",
                    prompt_logprobs=0 if arrival.computes_whole_prompt else None,
                    priority=arrival.priority,
                    tenant=arrival.tenant,
                    deadline=arrival.deadline,
                )
                if arrival.abort_after is not None:
                    aborts[request.request_id] = step + arrival.abort_after
                following = next(coming, None)
            for request_id in [name for name, at in aborts.items() if at <= step]:
                del aborts[request_id]
                if request_id in kernel.requests:
                    kernel.abort(kernel.requests[request_id])
            if following is None and not kernel.requests:
                return trace
            kernel.step()
        raise AssertionError(
            f"after {limit} steps {len(kernel.requests)} requests have not ended: "
            f"{sorted(kernel.requests)[:8]}"
        )
    except Exception as error:
        error.add_note(f"in the random workload of seed {load.seed}")
        raise
    finally:
        kernel.on_scheduled = None


def seeds(seed: int, count: int) -> Iterator[int]:
    """Seeds of `count` workloads from the seed of a run."""
    return iter(range(seed * 1_000_003, seed * 1_000_003 + count))
