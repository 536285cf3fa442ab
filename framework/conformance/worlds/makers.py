"""Making parts as the kernel makes them, in a configuration of the suite's own."""

from __future__ import annotations

from typing import Any

from framework.conformance.subject import Subject
from framework.conformance.worlds.mini_kernel import MiniKernel
from framework.plugins.construct import construct
from hookspecs.config import EngineConfig
from hookspecs.contracts.policy import SchedulingPolicy
from hookspecs.kinds import PLUGIN_KINDS

__all__ = ["PartMaker", "kernel_around"]


class PartMaker:
    """A `Maker`: the provider under test for its kind, what the configuration of the subject
    names for the others. What costs time is done once, so many parts can be made."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._manager = subject.manager()

    def __call__(self, kind: str, config: EngineConfig, /, **fields: Any) -> Any:
        return self.named(kind, self._name_of(kind), config, **fields)

    def named(self, kind: str, name: str, config: EngineConfig, /, **fields: Any) -> Any:
        """An object of the provider of that name, or `distribution:name`."""
        found = self._manager.resolve(kind, name)
        context = found.kind.context(
            config=config,
            options=self._manager.options(kind, name),
            plugin=found.ref.name,
            name=found.provider.name,
            **fields,
        )
        return construct(found, context)

    def policies(self, config: EngineConfig | None = None) -> list[SchedulingPolicy]:
        """The scheduling policies that the configuration of the subject names."""
        names = self._manager.config.scheduler.policies
        return [
            self.named("scheduling_policy", name, config or self._manager.config) for name in names
        ]

    def _name_of(self, kind: str) -> str:
        setting = PLUGIN_KINDS[kind].setting
        assert setting is not None, f"the configuration does not select a {kind}"
        section, _, key = setting.partition(".")
        name = getattr(getattr(self._manager.config, section), key)
        assert isinstance(name, str), f"{setting} selects several"
        return name


def kernel_around(make: PartMaker, **sizes: Any) -> MiniKernel:
    """A mini kernel with the subject's policies; sizes as `MiniKernel` takes them."""
    sizes.setdefault("policies", make.policies())
    return MiniKernel(make, **sizes)
