"""`convert_struct`: which field of a struct is wrong, whatever the values."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.config.complaint import WrongField, convert_struct


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    low: Annotated[int, msgspec.Meta(ge=0)] = 0


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    limits: list[Limit] = []
    by_tenant: dict[str, Limit] = {}
    weight: float = msgspec.field(default=1.0, name="share")


@pytest.mark.parametrize(
    ("values", "field", "value", "message"),
    [
        ({"name": 3}, "name", 3, "box.name: Expected `str`, got `int`"),
        ({"name": "a", "share": "1"}, "share", "1", "box.share: Expected `float`, got `str`"),
        (
            {"name": "a", "limits": [{"low": -1}]},
            "limits",
            [{"low": -1}],
            "box.limits[0].low: Expected `int` >= 0",
        ),
        (
            {"name": "a", "by_tenant": {"x": {"low": -1}}},
            "by_tenant",
            {"x": {"low": -1}},
            "box.by_tenant[...].low: Expected `int` >= 0",
        ),
        (
            {"name": "a", "by_tenant": {5: {}}},
            "by_tenant",
            {5: {}},
            "box.by_tenant: Expected `str`, got `int`",
        ),
        ({}, "name", None, "box: Object missing required field `name`"),
        (
            {"nmae": "a"},
            "nmae",
            "a",
            "box has no option 'nmae'; there are: name, limits, by_tenant, share. "
            "Did you mean name?",
        ),
        ({"name": "a", 7: 1}, None, {"name": "a", 7: 1}, "box has no option 7; there are: "),
        (5, None, 5, "box: Expected `object`, got `int`"),
        (None, None, None, "box: Expected `object`, got `null`"),
    ],
)
def test_the_wrong_field_is_named(values: Any, field: str | None, value: Any, message: str) -> None:
    with pytest.raises(WrongField) as caught:
        convert_struct(Options, values, "box")
    assert (caught.value.field, caught.value.value) == (field, value)
    assert str(caught.value).startswith(message)
    assert str(caught.value).startswith(caught.value.where)
    assert str(caught.value).endswith(caught.value.what)


def test_what_fits_is_converted() -> None:
    made = convert_struct(Options, {"name": "a", "limits": [{"low": 2}], "share": 2}, "box")
    assert made == Options(name="a", limits=[Limit(low=2)], weight=2.0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["name", "limits", "by_tenant", "share", "x"]), JSON) | JSON)
def test_anything_is_a_struct_or_a_wrong_field(values: Any) -> None:
    try:
        convert_struct(Options, values, "box", "argument")
    except WrongField as error:
        if isinstance(values, dict):
            assert error.field in {*values, "name"}
            assert error.value == values.get(error.field)
