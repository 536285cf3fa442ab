"""Values that all front-end processes share. Imports nothing of prometheus-client."""

from __future__ import annotations

import os
import sys
from typing import Final

from hookspecs.errors import ProviderError

__all__ = ["share"]

VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
"""How prometheus-client is told, which reads it when it is imported, and never again."""


def share(shared_dir: str, plugin: str) -> str:
    """Make prometheus-client of this process keep its values in a folder of `shared_dir`, which
    is returned. ProviderError when it is too late for that."""
    folder = os.path.join(shared_dir, "prometheus")
    values = sys.modules.get("prometheus_client.values")
    shares = values is not None and values.ValueClass._multiprocess
    if values is not None and not (shares and os.environ.get(VARIABLE) == folder):
        raise ProviderError(
            "the stat logger 'prometheus' has to share its metrics with other front-end processes "
            f"in {folder}, but prometheus_client is imported already, without {VARIABLE} or with "
            "another folder. Let no plugin import it earlier in this process, or set "
            "serving.processes to 1",
            plugin=plugin,
            hook="register_stat_loggers",
        )
    os.makedirs(folder, exist_ok=True)
    os.environ[VARIABLE] = folder
    return folder
