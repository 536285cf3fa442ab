"""The page of helpers for plugins has all that `framework.sdk` exports."""

from __future__ import annotations

import re

from framework.plugins.snapshot_sdk import sdk_sections
from tests.docs.guide import ROOT

PAGE = (ROOT / "docs" / "plugins" / "sdk.md").read_text(encoding="utf-8")


def test_every_module_and_name_is_on_the_page() -> None:
    exported = {path for section in sdk_sections().values() for path in section}
    assert exported
    for path in exported:
        module, _, name = path.removeprefix("framework.sdk.").rpartition(".")
        for word in (*module.split("."), name):
            assert re.search(rf"\b{word}\b", PAGE), f"{path}: the page has no {word!r}"


def test_every_signature_is_that_of_the_code() -> None:
    page = PAGE.replace("\\|", "|")  # in a table
    for path, signature in sdk_sections()["functions"].items():
        assert f"{path.rpartition('.')[2]}{signature}" in page, path
