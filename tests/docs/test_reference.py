"""The generated reference: complete, exact, and what is committed."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import hookspecs.errors
import hookspecs.events
from framework.config.keys import KEYS
from framework.docs.__main__ import main
from framework.docs.pages import differences, render_pages, write_pages
from hookspecs.hooks import EngineHooks
from hookspecs.kinds import PLUGIN_KINDS, PluginKind
from hookspecs.markers import hook_meta

COMMITTED = Path(__file__).parents[2] / "docs" / "reference"
HOOKS = [name for name, function in vars(EngineHooks).items() if hasattr(function, "__hook_meta__")]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return render_pages()


def section(page: str, heading: str) -> str:
    """From a heading to the next one of its level or above."""
    level = heading.partition(" ")[0]
    lines = page.splitlines()
    begin = lines.index(heading)
    ends = [
        at
        for at in range(begin + 1, len(lines))
        if lines[at].startswith("#") and len(lines[at].partition(" ")[0]) <= len(level)
    ]
    return "\n".join(lines[begin : ends[0] if ends else len(lines)])


def test_committed_pages_are_what_the_contract_says(pages: dict[str, str]) -> None:
    assert differences(pages, COMMITTED) == [], "run: python -m framework.docs"


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_has_an_entry_with_its_exact_signature(pages: dict[str, str], hook: str) -> None:
    function = getattr(EngineHooks, hook)
    entry = section(pages["hooks.md"], f"### `{hook}`")
    signature = str(inspect.signature(function)).replace("'", "")
    assert f"def {hook}{signature}" in " ".join(entry.split())
    meta = hook_meta(function)
    for fact in (meta.kind, meta.since, meta.tier, meta.activation, ", ".join(meta.roles)):
        assert f"| {fact} |" in entry
    assert inspect.getdoc(function).partition("\n")[0].split("*")[0] in entry  # type: ignore[union-attr]


@pytest.mark.parametrize("name", [n for n in hookspecs.events.__all__ if n != "Event"])
def test_every_event_has_its_fields(pages: dict[str, str], name: str) -> None:
    event = getattr(hookspecs.events, name)
    assert f"`{name}`: " in pages["hooks.md"]
    for field in event.__struct_fields__:
        assert f"| `{field}` | `" in pages["hooks.md"]


@pytest.mark.parametrize("kind", PLUGIN_KINDS.values(), ids=PLUGIN_KINDS)
def test_every_plugin_kind_has_a_page_with_its_whole_contract(
    pages: dict[str, str], kind: PluginKind
) -> None:
    page = pages[f"contracts/{kind.name}.md"]
    for name in list(vars(kind.contract)):
        if name.startswith("_") or name == "capabilities":
            continue
        if name in kind.contract.__annotations__:
            assert f"| `{name}` | `ClassVar" in section(page, f"## {kind.contract.__name__}")
        else:
            assert f"### `{name}`\n" in page
    for name in getattr(kind.contract, "__abstractmethods__", ()):
        assert "*abstract" in section(page, f"### `{name}`")
    for field in kind.context.__struct_fields__:
        assert f"| `{field}` |" in section(page, "## Context")
    for capability in kind.capabilities or ():
        assert f"| `{capability.name}` | `'{capability.value}'` |" in section(
            page, "## Capabilities"
        )
    if kind.setting is not None:
        assert f"[`{kind.setting}`](../config.md#" in page


def test_every_public_name_of_a_contract_module_is_on_some_page(pages: dict[str, str]) -> None:
    text = "\n".join(pages.values())
    modules = {inspect.getmodule(kind.contract) for kind in PLUGIN_KINDS.values()}
    for module in modules:
        assert module is not None
        for name in module.__all__:
            if inspect.isclass(getattr(module, name)):
                assert f"# {name}\n" in text or f"`{name}`" in text, name


def test_every_key_and_error_is_there(pages: dict[str, str]) -> None:
    for key in KEYS:
        assert f"| `{key}` | " in pages["config.md"]
    for error in hookspecs.errors.__all__:
        assert f"\n## {error}\n" in pages["errors.md"]


def test_bounds_defaults_and_descriptions_come_from_the_structs(pages: dict[str, str]) -> None:
    row = "| `cache.block_size` | an integer from 1 to 1024 | `16` | Tokens a block. |"
    assert row in pages["config.md"]
    assert "| `kv_blocks_total` | `int` | `0` |  |" in pages["types.md"]
    assert "| `layers` | `tuple[int, ...]` | - |  |" in pages["types.md"]


def test_built_in_plugins_are_listed_with_their_options(pages: dict[str, str]) -> None:
    page = pages["builtin-plugins.md"]
    for kind in ("scheduler", "executor", "worker", "attention_backend", "sampler"):
        assert f"\n## {kind}\n" in page
    assert "| `plugins.options.fair_share.default_weight` | a number greater than 0" in page


def test_check_names_what_differs_and_writing_repairs_it(
    pages: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reference = tmp_path / "docs" / "reference"
    reference.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    write_pages(pages, reference)
    assert main(["--check"]) == 0

    (reference / "hooks.md").write_text("old")
    (reference / "errors.md").unlink()
    (reference / "contracts" / "gone.md").write_text("a kind that is no more")
    assert main(["--check"]) == 1
    said = capsys.readouterr().err
    assert all(name in said for name in ("hooks.md", "errors.md", "gone.md"))
    assert "types.md" not in said

    assert main([]) == 0
    assert main(["--check"]) == 0
    assert not (reference / "contracts" / "gone.md").exists()


def test_outside_of_a_checkout_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main([])
    assert list(tmp_path.iterdir()) == []
