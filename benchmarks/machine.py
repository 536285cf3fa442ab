"""What a table was measured on: the kind of machine, and versions."""

from __future__ import annotations

import importlib.metadata
import platform
from pathlib import Path

import psutil

__all__ = ["cores", "machine_kind", "versions"]

_UNITS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "sve", "asimd")
_PACKAGES = ("engine-framework", "torch", "transformers")


def cores() -> int:
    """That this process may use."""
    return len(psutil.Process().cpu_affinity() or range(psutil.cpu_count() or 1))


def machine_kind() -> str:
    """Cores, processor, its vector units, memory, accelerators."""
    info = _cpu_info()
    units = [unit for unit in _UNITS if unit in info.get("flags", info.get("Features", "")).split()]
    memory = psutil.virtual_memory().total / 2**30
    name = info.get("model name", platform.machine())
    return f"{cores()} cores of {name} ({', '.join(units)}), {memory:.0f} GiB"


def versions() -> dict[str, str]:
    """Of Python and of the packages that matter, in this environment."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        found[package] = importlib.metadata.version(package)
    return found


def _cpu_info() -> dict[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
