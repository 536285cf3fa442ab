"""All mutants: those of every module beside this one that has `MUTANTS`."""

from __future__ import annotations

import importlib
from pathlib import Path

from tests.conformance.mutants.mutant import Mutant

__all__ = ["all_mutants"]

_HELPERS = ("catalogue", "mutant")


def all_mutants() -> list[Mutant]:
    """In the order of their suites."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py"))
    found: list[Mutant] = []
    for name in names:
        if name not in _HELPERS and not name.startswith("_"):
            found += importlib.import_module(f"tests.conformance.mutants.{name}").MUTANTS
    return found
