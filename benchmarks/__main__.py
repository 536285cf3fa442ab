"""`python -m benchmarks [NAME …]`: run benchmarks and print their tables."""

from __future__ import annotations

import sys

from benchmarks import attention_backends, plugin_layer

BENCHMARKS = {
    "attention-backends": attention_backends.main,
    "plugin-layer": plugin_layer.main,
}


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"unknown benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
        return 2
    for name in names or BENCHMARKS:
        BENCHMARKS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
