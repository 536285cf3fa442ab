"""What of the contract is deprecated, and the release that removes it. The one place for it.

A row names its subject as `framework plugins diff` does: `hooks on_x_happened`,
`contracts hookspecs.contracts.policy.SchedulingPolicy.expire`, `structs hookspecs.events.X.field`,
`enums hookspecs.contracts.scheduler.SchedulerCapability.X`. The warning class of a row is named
for the release that removes it; only a major version removes.
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

__all__ = [
    "DEPRECATIONS",
    "ContractDeprecationWarning",
    "Deprecation",
    "RemovedIn2Warning",
    "deprecation_of",
]


class ContractDeprecationWarning(DeprecationWarning):
    """Base of all; a plugin's tests may turn it into an error."""

    removed_in: ClassVar[str]
    """`major.0` of the contract."""


class RemovedIn2Warning(ContractDeprecationWarning):
    """It works throughout contract 1, and is gone in 2.0."""

    removed_in = "2.0"


class Deprecation(msgspec.Struct, frozen=True, kw_only=True):
    """One deprecated hook, contract, method, struct, field, enumeration, member or error."""

    subject: str
    since: str
    """`major.minor` of the contract that announced it."""
    removal: type[ContractDeprecationWarning]
    instead: str
    """What takes its place, or `nothing`."""

    def __str__(self) -> str:
        return (
            f"deprecated since {self.since}, removed in {self.removal.removed_in}; "
            f"instead: {self.instead}"
        )


DEPRECATIONS: Final[tuple[Deprecation, ...]] = ()
"""Those of the present contract. A row stays until its subject is removed."""


def deprecation_of(subject: str) -> Deprecation | None:
    """The row of a subject, if it is deprecated."""
    return next((row for row in DEPRECATIONS if row.subject == subject), None)
