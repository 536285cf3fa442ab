"""Making the object behind a selected provider: import, construct, check against its contract."""

from __future__ import annotations

import inspect
import weakref
from typing import Any

from framework.config.suggest import suggestion
from framework.plugins.deprecation import warn_of_methods
from framework.plugins.failure import describe
from framework.plugins.imports import load_object
from framework.plugins.registry import RegisteredProvider
from hookspecs.contracts.base import Context
from hookspecs.errors import (
    ContractViolation,
    FrameworkError,
    MissingDependencyError,
    ProviderError,
)

__all__ = [
    "Construction",
    "check_members",
    "construct",
    "declares_capabilities",
    "import_target",
    "wrong_capabilities",
]


def import_target(found: RegisteredProvider) -> Any:
    """The class or factory that a provider names.

    MissingDependencyError when a package of its `extra` is not installed, ProviderError for
    any other failure; the cause is chained.
    """
    target = found.provider.target
    try:
        return load_object(target)
    except AttributeError as error:
        module = getattr(error, "obj", None)
        hint = suggestion(error.name, dir(module)) if module is not None and error.name else ""
        raise _error(found, f"importing {target} failed: {error}.{hint}") from error
    except ImportError as error:
        if found.provider.extra and not _own(error.name, target):
            installs = found.ref.distribution or "DISTRIBUTION"
            raise MissingDependencyError(
                f"the {found.kind.name} {found.provider.name!r} of {found.ref} needs the package "
                f"{error.name or error}; install it with: "
                f"pip install '{installs}[{found.provider.extra}]'"
            ) from error
        raise _error(found, f"importing {target} failed: {error}") from error
    except (Exception, SystemExit) as error:
        raise _error(found, f"importing {target} failed: {describe(error)}") from error


def _own(missing: str | None, target: str) -> bool:
    """Whether the module that is missing belongs to the provider's own package."""
    return (
        missing is not None
        and missing.partition(".")[0] == target.partition(":")[0].partition(".")[0]
    )


class Construction:
    """Makes objects of one provider. What is the same for all of them, the import of the target
    and the check of its class, is done once."""

    def __init__(self, found: RegisteredProvider) -> None:
        """Import the target. ProviderError, MissingDependencyError, and ContractViolation for a
        class that lacks methods."""
        self._found = found
        self._target = import_target(found)
        self._checked: weakref.WeakSet[type[Any]] = weakref.WeakSet()
        """A factory may make objects of several classes."""
        if inspect.isabstract(self._target):
            missing = ", ".join(sorted(self._target.__abstractmethods__))
            raise _violation(found, f"{self._target.__name__} lacks {missing}")

    def __call__(self, context: Context) -> Any:
        """Call the target with its context.

        An error class of this project that it raises on purpose comes out as it is; anything else
        becomes ProviderError. ContractViolation when the object is not a complete implementation.
        """
        found, contract = self._found, self._found.kind.contract
        try:
            made = self._target(context)
        except FrameworkError:
            raise
        except (Exception, SystemExit) as error:
            raise _error(found, f"constructing it failed: {describe(error)}") from error
        cls = type(made)
        if cls not in self._checked:
            if not isinstance(made, contract):
                raise _violation(
                    found, f"{found.provider.target} made a {cls.__name__}, no {contract.__name__}"
                )
            check_members(found, cls)
        if not isinstance(getattr(made, "context", None), found.kind.context):
            raise _violation(
                found,
                f"{cls.__name__} does not keep its context; its constructor must call "
                "super().__init__(context)",
            )
        _settle_capabilities(found, made)
        if cls not in self._checked:
            warn_of_methods(found.ref, cls)
            self._checked.add(cls)
        return made


def construct(found: RegisteredProvider, context: Context) -> Any:
    """One object of a provider; see `Construction`."""
    return Construction(found)(context)


def check_members(found: RegisteredProvider, made: type[Any]) -> None:
    """ContractViolation for a property where the contract has a method, and the reverse."""
    contract = found.kind.contract
    for name, member in inspect.getmembers_static(contract):
        if name.startswith("_"):
            continue
        own = inspect.getattr_static(made, name, None)
        if inspect.isfunction(member) and isinstance(own, property):
            raise _violation(found, f"{made.__name__}.{name} is a property, but must be a method")
        if isinstance(member, property) and inspect.isfunction(own):
            raise _violation(found, f"{made.__name__}.{name} is a method, but must be a property")


def declares_capabilities(found: RegisteredProvider, made: type[Any]) -> bool:
    """Whether a class says itself what it can do, beyond the empty set of its contract."""
    bases = made.__mro__[: made.__mro__.index(found.kind.contract)]
    return any("capabilities" in vars(base) for base in bases)


def wrong_capabilities(found: RegisteredProvider, declared: Any) -> str | None:
    """What is wrong with the capabilities that a class or object declares, if anything: those
    of its Provider are read by the kernel, its own by other parts."""
    if declared == found.provider.capabilities:
        return None
    shown = sorted(map(str, declared)) if isinstance(declared, frozenset) else repr(declared)
    return (
        f"its Provider declares the capabilities {sorted(map(str, found.provider.capabilities))}, "
        f"its class {shown}"
    )


def _settle_capabilities(found: RegisteredProvider, made: Any) -> None:
    """ContractViolation where object and Provider differ; an object that declares none gets
    those of the Provider."""
    if found.kind.capabilities is None:
        return
    if not declares_capabilities(found, type(made)) and "capabilities" not in vars(made):
        # Not by its own __setattr__, which may refuse.
        object.__setattr__(made, "capabilities", found.provider.capabilities)
    wrong = wrong_capabilities(found, made.capabilities)
    if wrong is not None:
        raise _violation(found, wrong)


def _error(found: RegisteredProvider, what: str) -> ProviderError:
    return ProviderError(
        f"{found.kind.name} {found.provider.name!r} of {found.ref}: {what}",
        plugin=found.ref.name,
        distribution=found.ref.distribution,
        hook=found.kind.hook,
    )


def _violation(found: RegisteredProvider, what: str) -> ContractViolation:
    return ContractViolation(
        f"{found.kind.name} {found.provider.name!r} of {found.ref}: {what}",
        plugin=found.ref.name,
        distribution=found.ref.distribution,
        hook=found.kind.hook,
    )
