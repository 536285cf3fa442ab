"""The version of the plugin contract, apart from the version of the distribution."""

from typing import Final

API_VERSION: Final = (1, 0)
"""(major, minor). Minor: a new hook, event field, capability, or contract method with a
default body. Major: anything else. `hookspecs/api.json` is the committed snapshot."""

PROTOCOL_VERSION: Final = 1
"""Version of the structs that cross a process boundary; carried in the first message."""
