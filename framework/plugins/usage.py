"""What a plugin uses of the contract, as far as its source tells."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from framework.plugins.plugin_source import Module, PluginSource
from framework.plugins.subjects import CLASS_SECTIONS, NAME_SECTIONS

__all__ = ["Usage", "contract_classes", "contract_names", "implemented_hooks", "usage_of"]

Function = ast.FunctionDef | ast.AsyncFunctionDef
ROOTS: Final = ("hookspecs", "framework")
"""Packages that lend what the contract holds."""
HOOKS_CLASS: Final = "hookspecs.hooks.EngineHooks"
"""What a plugin implements, whether or not its class derives from it."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Names; types of expressions are not known."""

    hooks: frozenset[str]
    """Those that it implements (`@hookimpl`)."""
    contract: frozenset[str]
    """What of the contract it imports or names, as `module.name`: classes, functions, constants,
    aliases."""
    dotted: frozenset[str]
    """The same as it writes them: `hookspecs.Provider` for `hookspecs.info.Provider`."""
    implements: dict[str, frozenset[str]]
    """Contracts that its classes derive from, with all that those classes define."""
    names: frozenset[str]
    """Every attribute and keyword in its code: fields and methods that it may use."""
    strings: frozenset[str]
    """Every string literal: capabilities may be written so."""


def contract_classes(*snapshots: Mapping[str, Any]) -> frozenset[str]:
    """All classes of some contracts, as `module.Class`."""
    return frozenset(
        path for snapshot in snapshots for section in CLASS_SECTIONS for path in snapshot[section]
    )


def contract_names(*snapshots: Mapping[str, Any]) -> frozenset[str]:
    """All that some contracts define, as `module.name`."""
    sections = [section for section in (*CLASS_SECTIONS, *NAME_SECTIONS) if section != "exports"]
    return frozenset(
        path for snapshot in snapshots for section in sections for path in snapshot[section]
    )


def usage_of(source: PluginSource, known: Collection[str]) -> Usage:
    """`known`: all that the contract defines, from `contract_names`."""
    scopes = {name: _Scope(module, known) for name, module in source.modules.items()}
    nodes = [node for module in source.modules.values() for node in ast.walk(module.tree)]
    return Usage(
        hooks=frozenset(hook for node in nodes for hook in implemented_hooks(node)),
        contract=frozenset(path for scope in scopes.values() for path in scope.used()),
        dotted=frozenset(dotted for scope in scopes.values() for dotted in scope.dotted_names()),
        implements=_implements(scopes),
        names=frozenset(name for node in nodes for name in _names(node)),
        strings=frozenset(
            node.value
            for node in nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ),
    )


class _Scope:
    """The top-level names of one module: what they mean elsewhere."""

    def __init__(self, module: Module, known: Collection[str]) -> None:
        self.tree = module.tree
        self.classes: dict[str, ast.ClassDef] = {}
        self._known = known
        self._by_name = {path.rpartition(".")[2]: path for path in known}
        self._imported: dict[str, str] = {}
        """Local name to dotted name."""
        self._explicit: set[str] = set()
        for node in ast.walk(module.tree):
            match node:
                case ast.ClassDef():
                    self.classes[node.name] = node
                case ast.Import():
                    for alias in node.names:
                        local = alias.asname or alias.name.partition(".")[0]
                        self._imported[local] = alias.name if alias.asname else local
                case ast.ImportFrom():
                    self._import_from(node, module.package)

    def _import_from(self, node: ast.ImportFrom, package: str) -> None:
        parts = package.split(".")
        base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
        origin = ".".join(part for part in (base, node.module) if part)
        for alias in node.names:
            if alias.name != "*":
                self._imported[alias.asname or alias.name] = f"{origin}.{alias.name}"
                self._explicit.add(f"{origin}.{alias.name}")
                continue
            for path in self._known:
                if path.rpartition(".")[0] == origin:
                    self._imported.setdefault(path.rpartition(".")[2], path)

    def dotted(self, node: ast.expr) -> str | None:
        """The dotted name that an expression means, if it is one."""
        match node:
            case ast.Name(id=name):
                return self._imported.get(name)
            case ast.Attribute(value=value, attr=name):
                owner = self.dotted(value)
                return None if owner is None else f"{owner}.{name}"
            case ast.Subscript(value=value):
                return self.dotted(value)
        return None

    def contract_name(self, dotted: str | None) -> str | None:
        """Where the contract defines what has this name, also where another module lends it."""
        if dotted is None or dotted.partition(".")[0] not in ROOTS:
            return None
        return dotted if dotted in self._known else self._by_name.get(dotted.rpartition(".")[2])

    def dotted_names(self) -> frozenset[str]:
        """All that is imported by name or mentioned, as far as it comes from elsewhere."""
        mentioned = {
            self.dotted(node)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Name | ast.Attribute)
        }
        return frozenset(name for name in self._explicit | mentioned if name is not None)

    def used(self) -> Iterator[str]:
        """Names of the contract that are imported or mentioned."""
        for dotted in self.dotted_names():
            found = self.contract_name(dotted)
            if found is not None:
                yield found

    def imported(self, name: str) -> str | None:
        """Where a top-level name of the module comes from."""
        return self._imported.get(name)


def _implements(scopes: Mapping[str, _Scope]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for scope in scopes.values():
        for cls in scope.classes.values():
            contracts, defined = _lineage(scope, cls, scopes, set())
            for contract in contracts:
                found.setdefault(contract, set()).update(defined)
    return {contract: frozenset(defined) for contract, defined in found.items()}


def _lineage(
    scope: _Scope, cls: ast.ClassDef, scopes: Mapping[str, _Scope], seen: set[ast.ClassDef]
) -> tuple[set[str], set[str]]:
    """Contract classes above a class, and what it and the plugin's own classes above define."""
    seen.add(cls)
    contracts, defined = set[str](), set(_defined(cls))
    if any(True for child in cls.body for _ in implemented_hooks(child)):
        contracts.add(HOOKS_CLASS)
    for base in cls.bases:
        contract = scope.contract_name(scope.dotted(base))
        if contract is not None:
            contracts.add(contract)
            continue
        own = _own_class(scope, base, scopes)
        if own is not None and own[1] not in seen:
            more, also = _lineage(*own, scopes, seen)
            contracts |= more
            defined |= also
    return contracts, defined


def _own_class(
    scope: _Scope, base: ast.expr, scopes: Mapping[str, _Scope]
) -> tuple[_Scope, ast.ClassDef] | None:
    """The class of the plugin that a base names; followed through its modules."""
    if isinstance(base, ast.Subscript):
        base = base.value
    if isinstance(base, ast.Name) and base.id in scope.classes:
        return scope, scope.classes[base.id]
    dotted = scope.dotted(base)
    for _ in range(len(scopes)):
        module, _, name = (dotted or "").rpartition(".")
        there = scopes.get(module)
        if there is None:
            return None
        if name in there.classes:
            return there, there.classes[name]
        dotted = there.imported(name)
    return None


def _defined(cls: ast.ClassDef) -> Iterator[str]:
    for node in cls.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))


def implemented_hooks(node: ast.AST) -> Iterator[str]:
    """The hook that a function implements, by its decorator; nothing for another node."""
    if not isinstance(node, Function):
        return
    for decorator in node.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        match call.func if call else decorator:
            case ast.Name(id="hookimpl") | ast.Attribute(attr="hookimpl"):
                given = {word.arg: word.value for word in call.keywords} if call else {}
                match given.get("specname"):
                    case ast.Constant(value=str(name)):
                        yield name
                    case _:
                        yield node.name


def _names(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Attribute(attr=name):
            yield name
        case ast.keyword(arg=str(name)):
            yield name
        case ast.MatchClass(kwd_attrs=names):
            yield from names
