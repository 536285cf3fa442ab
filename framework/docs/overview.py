"""The first page of the reference."""

from __future__ import annotations

from framework.docs.markdown import join, table
from hookspecs.version import API_VERSION

__all__ = ["reference_index"]

PAGES = (
    ("hooks.md", "Hooks", "what the kernel asks and tells plugins"),
    ("contracts/index.md", "Plugin kinds", "the contract of each, one page a kind"),
    ("types.md", "Data types", "what crosses a plugin or process boundary"),
    ("errors.md", "Errors", "every way to fail"),
    ("deprecations.md", "Deprecations", "what later versions remove"),
    ("config.md", "Configuration", "every key"),
    ("cli.md", "Command line", "commands, arguments, exit codes"),
    ("builtin-plugins.md", "Built-in plugins", "providers, capabilities and options"),
    ("metrics.md", "Metrics", "names, labels and what counts"),
    ("kit-coverage.md", "Conformance kit", "what its tests ask, and the faults that they catch"),
)


def reference_index() -> str:
    """Links to all pages."""
    return join(
        [
            "# Reference",
            f"Generated from the contract, version {API_VERSION[0]}.{API_VERSION[1]}. How to write "
            "a plugin is in the [guide](../plugins/index.md).",
            table(
                ("page", "what is there"),
                [(f"[{title}]({path})", what) for path, title, what in PAGES],
            ),
        ]
    )
