"""One page for each plugin kind."""

from __future__ import annotations

import inspect
import sys

from framework.docs.classes import (
    alias_entries,
    class_entry,
    fields_table,
    members_table,
    method_flags,
)
from framework.docs.links import kind_page, related, used_elsewhere
from framework.docs.markdown import anchor, code, code_block, join, prose, table
from framework.docs.source import class_source, fields_of
from framework.plugins.specs import HOOKS
from hookspecs.kinds import PLUGIN_KINDS, PluginKind

__all__ = ["contract_pages", "contracts_index"]


def contracts_index() -> str:
    """The list of plugin kinds."""
    rows = [
        (
            f"[{code(kind.name)}]({kind.name}.md)",
            code(kind.contract.__name__),
            f"[{code(kind.hook)}](../hooks.md#{anchor(kind.hook)})",
            _setting(kind),
        )
        for kind in PLUGIN_KINDS.values()
    ]
    return join(["# Plugin kinds", table(("kind", "contract", "hook", "selected by"), rows)])


def contract_pages() -> dict[str, str]:
    """Path below `docs/reference` to text."""
    return {kind_page(kind): _page(kind) for kind in PLUGIN_KINDS.values()}


def _page(kind: PluginKind) -> str:
    contract = class_source(kind.contract)
    module = sys.modules[kind.contract.__module__]
    attributes = [field for field in contract.fields if field.name != "capabilities"]
    blocks = [
        f"# {kind.name}",
        prose(inspect.cleandoc(module.__doc__ or "")),
        table(("", ""), _facts(kind)),
        f"## {kind.contract.__name__}",
        prose(contract.doc),
        fields_table(attributes),
        "## Context",
        f"`{kind.context.__name__}`, the one argument of the constructor, kept as `context`.",
        fields_table(fields_of(kind.context)),
        *_capabilities(kind),
        "## Methods",
    ]
    for method in contract.methods:
        blocks += [
            f"### {code(method.name)}",
            code_block(method.signature),
            f"*{method_flags(method)}*",
            prose(method.doc),
        ]
    classes, named = related(kind), alias_entries(module)
    if classes or named:
        blocks += ["## Related types", *named]
    for cls in classes:
        blocks += class_entry(cls, 3)
    elsewhere = used_elsewhere(kind)
    if elsewhere:
        found = ", ".join(f"[{code(name)}](../{at})" for name, at in elsewhere)
        blocks += ["## Defined elsewhere", found]
    return join(blocks)


def _setting(kind: PluginKind) -> str:
    if kind.setting is None:
        return "-"
    section = kind.setting.partition(".")[0]
    return f"[{code(kind.setting)}](../config.md#{anchor(section)})"


def _facts(kind: PluginKind) -> list[tuple[str, str]]:
    meta = HOOKS[kind.hook].meta
    return [
        ("contract", code(f"{kind.contract.__module__}.{kind.contract.__name__}")),
        ("registered by", f"[{code(kind.hook)}](../hooks.md#{anchor(kind.hook)})"),
        ("selected by", _setting(kind)),
        ("processes", ", ".join(meta.roles)),
        ("since", meta.since),
        ("tier", str(meta.tier)),
    ]


def _capabilities(kind: PluginKind) -> list[str]:
    if kind.capabilities is None:
        return []
    source = class_source(kind.capabilities)
    return [
        "## Capabilities",
        f"`{kind.capabilities.__name__}`: {prose(source.doc)}",
        members_table(source.fields),
    ]
