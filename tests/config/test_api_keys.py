"""Keys that would open a server to those who have none."""

from __future__ import annotations

import pytest

from framework.config import load_config
from hookspecs.errors import ConfigError


@pytest.mark.parametrize("key", ["", " ", "\t", "\n", " key", "key ", "key\n", "\u00a0key"])
def test_blank_keys_and_keys_with_spaces_around_them_are_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=r"serving\.api_keys"):
        load_config({"serving": {"api_keys": ["good", key]}}, environ={})


@pytest.mark.parametrize("key", ["k", "two words", "zweiter-schl\u00fcssel", "a" * 500])
def test_other_keys_are_taken(key: str) -> None:
    resolved = load_config({"serving": {"api_keys": [key]}}, environ={})
    assert resolved.config.serving.api_keys == (key,)
