"""`Conformance`: the base of all suites, and the marks of their tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from enum import StrEnum
from typing import Any, ClassVar, Final, TypeVar

import pytest

from framework.config import suggestion
from framework.conformance.subject import Examples, PluginSubject, Subject
from hookspecs.errors import ConfigError

__all__ = ["NOT_DECLARED", "Conformance", "binding", "lacking", "requires", "since"]

F = TypeVar("F", bound=Callable[..., Any])
NOT_DECLARED: Final = "not declared: "
"""How the reason of the only skip begins that a suite knows."""


def requires(*capabilities: StrEnum) -> Callable[[F], F]:
    """A test of what the provider declares: run only where it declares all of them."""
    return _mark("__requires__", capabilities)


def lacking(*capabilities: StrEnum) -> Callable[[F], F]:
    """A test that what the provider does not declare is refused: run only where it declares none
    of them."""
    return _mark("__lacking__", capabilities)


def since(version: str) -> Callable[[F], F]:
    """The contract version that brought the test. It is advisory in that minor version, binding
    afterwards, so that no plugin fails by an upgrade alone."""
    major, _, minor = version.partition(".")
    return _mark("__since__", (int(major), int(minor)))


def binding(test: Callable[..., Any], api_version: tuple[int, int]) -> bool:
    """Whether a failure of the test counts at a contract version."""
    major, minor = getattr(test, "__since__", (1, 0))
    return minor == 0 or (major, minor) < api_version


def _mark(name: str, value: object) -> Callable[[F], F]:
    def mark(function: F) -> F:
        setattr(function, name, value)
        return function

    return mark


class Conformance:
    """Tests that every implementation of one contract passes. A subclass overrides `subject`.

    Each test's docstring has three sentences: what it requires, what it does, what the plugin
    must do. A subclass that replaces a test names it in `replaced`, with the reason.
    """

    kind: ClassVar[str]
    """The plugin kind; of suites for whole plugins another word."""
    replaced: ClassVar[dict[str, str]] = {}
    """Test to the reason why a subclass replaces it."""
    example_keys: ClassVar[frozenset[str]] = frozenset()
    """What may be in the examples of a provider; the docstring of the suite says what each is."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        inherited = {
            name for base in cls.__mro__[1:] for name in vars(base) if name.startswith("test_")
        }
        unexplained = {
            name for name in inherited & vars(cls).keys() if not cls.replaced.get(name, "").strip()
        }
        if unexplained:
            raise TypeError(
                f"{cls.__name__} replaces {', '.join(sorted(unexplained))} of the kit without a "
                "reason; say why in its class attribute `replaced`, or rename the test"
            )

    @pytest.fixture
    def subject(self) -> PluginSubject:
        """What is under test."""
        raise NotImplementedError(
            f"{type(self).__name__} must override the fixture `subject`, which returns a Subject"
        )

    @pytest.fixture
    def seed(self, request: pytest.FixtureRequest) -> int:
        """Of all random choices; `--seed` of `framework conform`, else 0."""
        return int(getattr(request.config, "conform_seed", 0))

    @pytest.fixture(autouse=True)
    def _declared(self, request: pytest.FixtureRequest, subject: PluginSubject) -> None:
        """Skips what the provider does not declare, or does declare: never anything else."""
        if isinstance(subject, Subject):
            self.check_examples(f"{subject.kind.name}:{subject.provider}", subject.examples)
        declared = subject.capabilities
        missing = [
            str(c) for c in getattr(request.function, "__requires__", ()) if c not in declared
        ]
        if missing:
            pytest.skip(f"{NOT_DECLARED}{', '.join(missing)}")
        unwanted = [str(c) for c in getattr(request.function, "__lacking__", ()) if c in declared]
        if unwanted:
            pytest.skip(f"{NOT_DECLARED}the lack of {', '.join(unwanted)}")

    @classmethod
    def check_examples(cls, label: str, examples: Examples) -> None:
        """ConfigError when those of a provider, `kind:provider`, have a key that the suite does
        not know."""
        for key in sorted(examples.keys() - cls.example_keys):
            allowed = ", ".join(sorted(cls.example_keys)) or "nothing"
            raise ConfigError(
                f"the examples for {label} have the unknown key {key!r}; the suite takes "
                f"{allowed}.{suggestion(key, cls.example_keys)}"
            )

    @classmethod
    def cases(cls) -> dict[str, Callable[..., Any]]:
        """Name to test of the suite, in the order in which they are written, bases first."""
        members = itertools.chain.from_iterable(vars(base) for base in reversed(cls.__mro__))
        return {name: getattr(cls, name) for name in members if name.startswith("test_")}
