"""Use of the KV cache manager."""

from __future__ import annotations

from framework.conformance.suites.scheduler.base import BOUND, SchedulerPart, spied
from framework.conformance.worlds.makers import PartMaker
from hookspecs.types.request import RequestStatus
from hookspecs.types.step import SchedulerOutput

__all__ = ["Cache"]


class Cache(SchedulerPart):
    """The cache is asked in the order of its protocol."""

    def test_a_start_keeps_to_its_protocol(self, make: PartMaker, seed: int) -> None:
        """Requires nothing.
        Does: watches what is asked of the cache while requests with common prefixes start, are
        preempted and resume.
        Must: look up, start, allocate with what was found, compute from there, and record the
        lookup once each time a request starts.
        """
        kernel, spy = spied(make, num_blocks=40)
        starts: dict[str, list[int]] = {}

        def note(output: SchedulerOutput) -> None:
            for new in output.new_requests:
                starts.setdefault(new.request_id, []).append(new.num_computed_tokens)

        kernel.on_scheduled = note
        shared = list(range(50, 62))
        requests = []
        for number in range(6):
            requests.append(kernel.add([*shared, number], 6))
            kernel.step()
            if number == 3:
                kernel.scheduler.preempt_all()
        kernel.run(BOUND)
        for request in requests:
            name = request.request_id
            recorded = spy.calls_of(name, "record_lookup")
            assert len(recorded) == len(starts[name]), (
                f"{name} started {len(starts[name])} times; record_lookup was called "
                f"{len(recorded)} times for it"
            )
            taken = [c for c in spy.calls_of(name, "allocate") if c.cached is not None]
            for allocated, record, computed in zip(taken, recorded, starts[name], strict=False):
                assert allocated.status is RequestStatus.RUNNING, (
                    f"{name} was given blocks while {allocated.status.name}; start comes first"
                )
                assert record.cached == allocated.cached, (
                    f"{name} took over {allocated.cached}, but {record.cached} was recorded"
                )
                assert allocated.cached is not None and computed == allocated.cached.num_tokens, (
                    f"{name} starts with {computed} computed tokens, with blocks of "
                    f"{allocated.cached}"
                )
                looked = [c.cached for c in spy.calls_of(name, "lookup")]
                assert allocated.cached in looked, (
                    f"{name} took over {allocated.cached}, which lookup did not find: {looked}"
                )

    def test_cached_prefixes_are_used(self, make: PartMaker) -> None:
        """Requires nothing: where the configured cache keeps no prefixes, nothing is found.
        Does: runs a prompt again whose beginning the cache holds.
        Must: compute only what was not found.
        """
        kernel, spy = spied(make, num_blocks=40)
        prompt = list(range(50, 66))
        kernel.add(prompt, 1)
        kernel.run(100)
        again = kernel.add([*prompt, 7, 8], 1)
        found = spy.real.lookup(again).num_tokens
        ran = kernel.schedule_of_next_step()
        assert ran == {again.request_id: 18 - found}, (
            f"{found} of 18 tokens are cached; the first step computes {ran}"
        )

    def test_blocks_are_freed_before_a_preemption(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: watches which blocks are freed for whom when all are preempted.
        Must: free those of each request, while it still runs.
        """
        kernel, spy = spied(make, num_blocks=40)
        requests = [kernel.add(6, 6) for _ in range(3)]
        kernel.step()
        kernel.scheduler.preempt_all()
        for request in requests:
            freed = [call.status for call in spy.calls_of(request.request_id, "free")]
            assert freed == [RequestStatus.RUNNING], (
                f"the blocks of {request.request_id} were freed while it was {freed}"
            )
