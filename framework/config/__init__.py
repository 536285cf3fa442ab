"""Configuration: from its sources to one checked `EngineConfig` with the origin of each value."""

from framework.config.file_flag import is_file_flag
from framework.config.keys import setting_names
from framework.config.load import ResolvedConfig, load_config, require_model
from framework.config.schema import config_schema
from framework.config.show import config_lines, config_tree
from framework.config.suggest import nearest, suggestion

__all__ = [
    "ResolvedConfig",
    "config_lines",
    "config_schema",
    "config_tree",
    "is_file_flag",
    "load_config",
    "nearest",
    "require_model",
    "setting_names",
    "suggestion",
]
