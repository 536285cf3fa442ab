"""The half in the engine core: reads what the kernel lends, between two steps."""

from __future__ import annotations

from hookspecs.contracts.engine_command import EngineCommand

from cache_census.census import Census, CensusArguments, Holder

__all__ = ["CacheCensus"]


class CacheCensus(EngineCommand):
    """Keeps nothing: everything is read anew from `context.engine`, which is lent for the call."""

    Arguments = CensusArguments

    def run(self, arguments: CensusArguments) -> Census:
        engine = self.context.engine
        view, cache, requests = engine.scheduler, engine.cache, engine.requests()
        listed = requests[: arguments.limit]
        return Census(
            engine=self.context.engine_index,
            blocks_free=cache.num_free_blocks,
            blocks_used=cache.num_total_blocks - cache.num_free_blocks,
            running=view.num_running,
            waiting=view.num_waiting,
            served_tokens={tenant: view.served_tokens(tenant) for tenant in arguments.tenants},
            requests=[
                Holder(
                    request_id=request.request_id,
                    tenant=request.tenant,
                    running=request.slot >= 0,
                    blocks=view.blocks_needed(request),
                )
                for request in listed
            ],
            requests_left_out=len(requests) - len(listed),
        )
