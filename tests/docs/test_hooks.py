"""Every hook is documented with its exact signature, shown by a plugin, and exercised by a test."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

import framework
from framework.docs.builtins import builtin_manager
from framework.docs.implementations import SAMPLES, builtins_by_hook, samples_by_hook
from framework.docs.pages import render_pages
from framework.plugins.specs import HOOKS, KIND_OF_HOOK
from framework.plugins.usage import implemented_hooks
from hookspecs import EngineHooks, SamplingParams, Tier
from hookspecs.errors import FrameworkError
from hookspecs.info import HookKind
from tests.docs.witness import Clumsy, Witness

ROOT: Final = Path(__file__).parents[2]
HOOKS_TO_SHOW: Final = [
    name for name, spec in HOOKS.items() if spec.meta.tier is not Tier.PROVISIONAL
]
BUILTINS: Final = builtins_by_hook()
SHOWN_BY: Final = samples_by_hook()
STARTS: Final = frozenset({"launch", "launch_async", "main", "Popen", "run"})
"""Functions that start an engine, or a process."""


# Documented


@pytest.fixture(scope="module")
def page() -> str:
    return render_pages()["hooks.md"]


def entry(page: str, hook: str) -> str:
    begin = page.index(f"\n### `{hook}`\n")
    found = re.search(r"\n##", page[begin + 1 :])
    return page[begin : begin + 1 + found.start()] if found else page[begin:]


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_documented_with_its_exact_signature(page: str, hook: str) -> None:
    assert page.count(f"\n### `{hook}`\n") == 1
    text = entry(page, hook)
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    documented = ast.parse(block.strip() + ": ...").body[0]
    tree = ast.parse(inspect.getsource(EngineHooks))
    (written,) = (
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == hook
    )
    assert isinstance(documented, ast.FunctionDef)
    assert ast.unparse(documented.args) == ast.unparse(written.args)
    assert documented.returns is not None and written.returns is not None
    assert ast.unparse(documented.returns) == ast.unparse(written.returns)
    meta, kind = HOOKS[hook].meta, KIND_OF_HOOK.get(hook)
    for row in (
        f"| kind | {meta.kind} |",
        f"| processes | {', '.join(meta.roles)} |",
        f"| since | {meta.since} |",
        f"| tier | {meta.tier} |",
        f"| hot | {'yes' if meta.hot else 'no'}",
        f"| activation | {meta.activation} |",
        f"| contract | [`{kind.contract.__name__}`]" if kind else "",
    ):
        assert row in text
    for name in BUILTINS[hook]:
        assert f"[`{name}`](builtin-plugins.md)" in text
    for name in SHOWN_BY[hook]:
        assert f"`sample_plugins/{name}`" in text


def test_how_hooks_get_their_options_is_documented(page: str) -> None:
    assert "def configured(self, context: PluginContext) -> Self" in page


# Shown


@pytest.mark.parametrize("hook", HOOKS_TO_SHOW)
def test_every_hook_has_a_sample(hook: str) -> None:
    assert SHOWN_BY[hook] or BUILTINS[hook], (
        f"no plugin shows {hook}: add one to sample_plugins, or make the hook provisional"
    )


# Exercised: what an engine calls, here; what plugins offer, as the tests are written, for providers
# are constructed in processes of all kinds.


@pytest.fixture(scope="module")
def heard() -> set[str]:
    """What an engine called that stops in order, and one that fails."""
    found: set[str] = set()
    settings = {
        "model": {"name": "scripted"},
        "executor": {"worker": "scripted"},
        "stats": {"loggers": []},
    }

    def params(**script: int) -> SamplingParams:
        extensions = {"scripted": script} if script else {}
        return SamplingParams(max_tokens=2, temperature=0, detokenize=False, extensions=extensions)

    with framework.launch(settings, plugins=[Witness(found), Clumsy()]) as engine:
        list(engine.generate([[1, 2, 3]], params()))
        engine.reset_prefix_cache()
    failing = framework.launch(settings, plugins=[Witness(found)])
    with failing as engine, pytest.raises(FrameworkError):
        list(engine.generate([[1, 2, 3]], params(raise_at=1)))
    return found


@pytest.mark.parametrize("hook", HOOKS_TO_SHOW)
def test_every_hook_has_a_test(heard: set[str], hook: str) -> None:
    """One that an engine calls is called here. One that offers something is implemented in some
    test, or some test that starts an engine or the command line names what is offered there."""
    if HOOKS[hook].meta.kind is not HookKind.PROVIDER:
        assert hook in heard
        return
    names = set(_offered_at(hook))
    tests = _tests()
    assert any(
        hook in _implemented(tree) or (STARTS & _calls(tree) and names & _strings(tree))
        for tree in tests
    ), f"no test implements {hook}, or uses one of {', '.join(sorted(names)) or 'no providers'}"


def _offered_at(hook: str) -> Iterator[str]:
    """Names of the providers of built-in plugins and samples."""
    for found in builtin_manager().providers(KIND_OF_HOOK[hook].name):
        yield found.provider.name
    for sample in SHOWN_BY[hook]:
        for file in (SAMPLES / sample / "src").rglob("plugin.py"):
            for node in ast.walk(ast.parse(file.read_bytes())):
                if hook in implemented_hooks(node):
                    yield from _provided(node)


def _provided(function: ast.AST) -> Iterator[str]:
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Name(id="Provider"), args=[ast.Constant(value=str(name)), *_]):
                yield name


@cache
def _tests() -> list[ast.Module]:
    """All modules of tests."""
    files = [*ROOT.glob("tests/**/*.py"), *SAMPLES.glob("*/tests/**/*.py")]
    return [ast.parse(file.read_bytes()) for file in files]


@cache
def _implemented(tree: ast.Module) -> frozenset[str]:
    return frozenset(hook for node in ast.walk(tree) for hook in implemented_hooks(node))


@cache
def _calls(tree: ast.Module) -> frozenset[str]:
    """Names of the functions that it calls."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                found.add(name)
    return frozenset(found)


@cache
def _strings(tree: ast.Module) -> frozenset[str]:
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)):
                found.add(text)
    return frozenset(found)
