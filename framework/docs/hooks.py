"""The page of hooks."""

from __future__ import annotations

import re
from collections.abc import Iterable

import hookspecs.events
import hookspecs.hooks
from framework.docs.classes import fields_table
from framework.docs.implementations import builtins_by_hook, samples_by_hook
from framework.docs.links import kind_page
from framework.docs.markdown import anchor, code, code_block, join, prose, table
from framework.docs.source import Method, aliases, class_source, fields_of
from framework.plugins.dispatch import MAX_FAILURES_IN_ROW
from framework.plugins.specs import HOOKS, KIND_OF_HOOK, HookSpec, hooks_of_kind
from hookspecs.deprecated import deprecation_of
from hookspecs.hooks import EngineHooks
from hookspecs.info import HookKind
from hookspecs.version import API_VERSION

__all__ = ["hooks_page"]

HEADINGS = {
    HookKind.PROVIDER: (
        "Provider hooks",
        "A plugin yields `Provider` objects; nothing is constructed before the configuration "
        "selects one. An exception or a malformed provider makes the plugin broken.",
    ),
    HookKind.STEP: (
        "Step hooks",
        "The selected object implements the phase. A plugin may only wrap it, with "
        "`hookimpl(wrapper=True)` and `wrap:<phase>` in `PluginInfo.provides`. A wrapper that "
        "raises stops the engine.",
    ),
    HookKind.FILTER: (
        "Filters",
        "A value passes through all of them in plugin order. Return a new event to change it, "
        "None to leave it as it is.",
    ),
    HookKind.OBSERVER: (
        "Observers",
        "Told what happened; the result is ignored. An exception is logged and counted, and after "
        f"{MAX_FAILURES_IN_ROW} in a row the observer is removed from that hook.",
    ),
}


def hooks_page() -> str:
    """Every hook with its metadata and, for filters and observers, the fields of its event."""
    methods = {method.name: method for method in class_source(EngineHooks).methods}
    stands_for = [
        f"`{name}` stands for `{text}`." for name, (text, _) in aliases(hookspecs.hooks).items()
    ]
    blocks = [
        "# Hooks",
        prose(class_source(EngineHooks).doc),
        f"Contract version {API_VERSION[0]}.{API_VERSION[1]}. " + " ".join(stands_for),
        table(("hook", "kind", "processes"), [_line(spec) for spec in HOOKS.values()]),
    ]
    configured = methods["configured"]
    blocks += ["## Options of hooks", code_block(configured.signature), prose(configured.doc)]
    builtins, samples = builtins_by_hook(), samples_by_hook()
    for kind in HookKind:
        heading, text = HEADINGS[kind]
        blocks += [f"## {heading}", text]
        for name in hooks_of_kind(kind):
            shown_by = _shown_by(builtins[name], samples[name])
            blocks += _entry(HOOKS[name], methods[name], shown_by)
    return join(blocks)


def _line(spec: HookSpec) -> tuple[str, str, str]:
    link = f"[{code(spec.name)}](#{anchor(spec.name)})"
    return link, str(spec.meta.kind), ", ".join(spec.meta.roles)


def _shown_by(builtins: Iterable[str], samples: Iterable[str]) -> list[tuple[str, str]]:
    """Rows of a table; of samples the folders."""
    link = "[{}](builtin-plugins.md)"
    named = [
        ("built-in plugins", ", ".join(link.format(code(name)) for name in builtins)),
        ("samples", ", ".join(code(f"sample_plugins/{name}") for name in samples)),
    ]
    return [(what, names) for what, names in named if names]


def _entry(spec: HookSpec, method: Method, shown_by: list[tuple[str, str]]) -> list[str]:
    meta = spec.meta
    kind = KIND_OF_HOOK.get(spec.name)
    facts = [
        ("kind", str(meta.kind)),
        ("processes", ", ".join(meta.roles)),
        ("since", meta.since),
        ("tier", str(meta.tier)),
        ("hot", "yes: called every step" if meta.hot else "no"),
        ("activation", str(meta.activation)),
    ]
    deprecation = deprecation_of(f"hooks {spec.name}")
    if deprecation is not None:
        facts.append(("deprecated", prose(str(deprecation))))
    if kind is not None:
        link = f"[{code(kind.contract.__name__)}]({kind_page(kind)})"
        facts.append(("contract", link))
    facts += shown_by
    return [
        f"### {code(spec.name)}",
        code_block(method.signature),
        prose(method.doc),
        table(("", ""), facts),
        *_events(method),
    ]


def _events(method: Method) -> list[str]:
    """A table of fields for each event in the signature, in its order."""
    words = dict.fromkeys(re.findall(r"\w+", method.signature))
    events = [getattr(hookspecs.events, word) for word in words if word in hookspecs.events.__all__]
    return [
        text
        for event in events
        for text in (
            f"`{event.__name__}`: {prose(class_source(event).doc)}",
            fields_table(fields_of(event)),
        )
    ]
