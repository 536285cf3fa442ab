"""What a request may set when its conversation is rendered: variables of the template, no more."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from framework.frontend.tokenizer import Tokenizer
from hookspecs.errors import InvalidRequestError

USER = {"role": "user", "content": "hi"}
ARGUMENTS = sorted(
    {"messages", *inspect.signature(PreTrainedTokenizerFast.apply_chat_template).parameters}
    - {"self"}
)


@pytest.mark.parametrize(
    "name",
    ["chat_template", "documents", "tokenizer_kwargs", "continue_final_message", *ARGUMENTS],
)
def test_arguments_of_the_rendering_are_refused(byte_level: Tokenizer, name: str) -> None:
    """The template above all: it is a program."""
    values: tuple[Any, ...] = (None, "{{ 'x' * 1000000000 }}", {}, True)
    for value in values:
        with pytest.raises(InvalidRequestError, match=f"'{name}' is not a variable") as caught:
            byte_level.render_chat([USER], template_arguments={name: value})
        assert caught.value.param == "chat_template_kwargs"


@pytest.mark.parametrize("arguments", [None, {}, {"enable_thinking": False}, {"other": [1]}])
def test_variables_of_the_template_are_passed_on(
    byte_level: Tokenizer, arguments: dict[str, Any] | None
) -> None:
    text = byte_level.render_chat([USER], template_arguments=arguments)
    assert text == "<user>hi<assistant>"
