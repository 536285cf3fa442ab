"""The entry point: what the package offers. Imports no implementation."""

from collections.abc import Iterable

from acme_engine.options import EchoOptions, SchedulerOptions, TotalsOptions
from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.info import AnyProvider


class AcmePlugin(EngineHooks):
    """One provider of each kind."""

    PLUGIN = PluginInfo(
        name="acme-engine-parts",
        api=">=1.0,<2",
        description="Every part of the engine once more, as simple as its contract allows",
    )

    @hookimpl
    def register_schedulers(self) -> Iterable[AnyProvider]:
        """Offer the scheduler `acme-reserve`."""
        yield Provider(
            "acme-reserve",
            "acme_engine.scheduler:ReservingScheduler",
            options=SchedulerOptions,
            description="Starts a request when blocks for all it may come to are there.",
        )

    @hookimpl
    def register_scheduling_policies(self) -> Iterable[AnyProvider]:
        """Offer the policy `acme-last-come`."""
        yield Provider(
            "acme-last-come",
            "acme_engine.policy:LastComePolicy",
            description="Last come, first served",
        )

    @hookimpl
    def register_kv_cache_managers(self) -> Iterable[AnyProvider]:
        """Offer the KV cache manager `acme-plain`."""
        yield Provider(
            "acme-plain",
            "acme_engine.kv_cache:PlainKVCacheManager",
            description="A list of free blocks; nothing is shared.",
        )

    @hookimpl
    def register_eviction_policies(self) -> Iterable[AnyProvider]:
        """Offer the eviction policy `acme-newest`."""
        yield Provider(
            "acme-newest",
            "acme_engine.eviction:NewestFirstEviction",
            description="The block that became unused last is given up first",
        )

    @hookimpl
    def register_executors(self) -> Iterable[AnyProvider]:
        """Offer the executor `acme-thread`."""
        yield Provider(
            "acme-thread",
            "acme_engine.executor:ThreadExecutor",
            description="One worker in a thread of its own.",
        )

    @hookimpl
    def register_workers(self) -> Iterable[AnyProvider]:
        """Offer the worker `acme-echo`."""
        yield Provider(
            "acme-echo",
            "acme_engine.worker:EchoWorker",
            options=EchoOptions,
            description="The next token is the last one plus one.",
        )

    @hookimpl
    def register_model_sources(self) -> Iterable[AnyProvider]:
        """Offer the model source `acme-echo`."""
        yield Provider(
            "acme-echo",
            "acme_engine.source:EchoSource",
            options=EchoOptions,
            description="The model `echo`, which has no files.",
        )

    @hookimpl
    def register_samplers(self) -> Iterable[AnyProvider]:
        """Offer the sampler `acme-greedy`."""
        yield Provider(
            "acme-greedy",
            "acme_engine.sampler:GreedySampler",
            description="The most likely token; a request that asks for draws fails.",
        )

    @hookimpl
    def register_stat_loggers(self) -> Iterable[AnyProvider]:
        """Offer the stat logger `acme-totals`."""
        yield Provider(
            "acme-totals",
            "acme_engine.stats:TotalsLogger",
            options=TotalsOptions,
            description="Totals in a JSON file, when the engine is closed.",
        )


plugin = AcmePlugin()
