"""What is read from the source of a class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from framework.docs.markdown import anchor, prose, table
from framework.docs.source import class_source, fields_of


class Colour(StrEnum):
    """Two of them."""

    RED = "red"
    """Like a rose."""
    BLUE = "blue"


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """Has one field."""

    plain: int
    """Told by a docstring
    of two lines."""


class Derived(Base, frozen=True, kw_only=True):
    """Has more."""

    bounded: Annotated[int, Meta(ge=1, description="Told by a description.")] = 2
    nested: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="May be None.")] = None
    items: list[str] = msgspec.field(default_factory=list)
    undescribed: Sequence[str] = ("a",)


class Contract(ABC):
    """An interface."""

    @abstractmethod
    def run(self, first: int, *, second: str = "x") -> None:
        """Do it."""

    @property
    def size(self) -> int:
        """How much."""
        return 0

    def _hidden(self) -> None:
        return


def test_members_of_an_enumeration_have_their_docstrings() -> None:
    red, blue = class_source(Colour).fields
    assert (red.name, red.default, red.doc) == ("RED", "'red'", "Like a rose.")
    assert (blue.name, blue.doc) == ("BLUE", "")


def test_a_field_is_described_by_its_docstring_or_its_meta() -> None:
    fields = {field.name: field for field in fields_of(Derived)}
    assert fields["plain"].doc == "Told by a docstring\nof two lines."
    assert fields["bounded"].doc == "Told by a description."
    assert fields["undescribed"].doc == ""


def test_types_are_shown_without_annotations_of_bounds() -> None:
    fields = {field.name: field for field in fields_of(Derived)}
    assert fields["bounded"].annotation == "int"
    assert fields["nested"].annotation == "int | None"


def test_defaults_are_shown_as_written() -> None:
    defaults = {field.name: field.default for field in fields_of(Derived)}
    assert defaults == {
        "bounded": "2",
        "nested": "None",
        "items": "[]",
        "undescribed": "('a',)",
        "plain": None,
    }


def test_own_fields_come_before_inherited_ones() -> None:
    assert [field.name for field in fields_of(Derived)][-1] == "plain"


def test_methods_have_signature_docstring_and_decorators() -> None:
    run, size = class_source(Contract).methods
    assert run.signature == "def run(self, first: int, *, second: str='x') -> None"
    assert run.doc == "Do it."
    assert "abstractmethod" in run.decorators
    assert "property" in size.decorators


def test_a_class_that_its_module_does_not_define_is_an_error() -> None:
    made = type("Made", (), {"__module__": __name__})
    with pytest.raises(LookupError, match="Made"):
        class_source(made)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[-2**63, 2**64)", r"[-2\*\*63, 2\*\*64)"),
        ("`a * b` and c * d", r"`a * b` and c \* d"),
        ("options.<name>", r"options.\<name>"),
    ],
)
def test_prose_keeps_code_and_escapes_the_rest(text: str, expected: str) -> None:
    assert prose(text) == expected


def test_a_pipe_does_not_end_a_cell() -> None:
    assert table(("a",), [("`int | None`\nmore",)]).splitlines()[-1] == r"| `int \| None` more |"


def test_anchors_follow_the_headings_of_the_forge() -> None:
    assert anchor("`register_schedulers`") == "register_schedulers"
    assert anchor("Errors and isolation") == "errors-and-isolation"
