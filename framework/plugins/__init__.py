"""The plugin system: find plugins, check them, collect what they offer, call their hooks.

`PluginManager.build` does all of it once, in the process that read the configuration; every
other process gets a `Boot` message and builds its own manager from that.
"""

from framework.plugins.boot import Boot, BootReply, compare
from framework.plugins.calls import Calls
from framework.plugins.discovery import PluginRef, Source
from framework.plugins.manager import PluginManager
from framework.plugins.registry import RegisteredProvider
from framework.plugins.report import PluginReport, PluginState

__all__ = [
    "Boot",
    "BootReply",
    "Calls",
    "PluginManager",
    "PluginRef",
    "PluginReport",
    "PluginState",
    "RegisteredProvider",
    "Source",
    "compare",
]
