"""`python -m benchmarks [NAME …]`: run benchmarks and print their tables.

`soak` and `serving` take arguments, and run only when named.
"""

from __future__ import annotations

import sys

from benchmarks import attention_backends, plugin_layer, serving_overhead, soak

BENCHMARKS = {
    "attention-backends": attention_backends.main,
    "plugin-layer": plugin_layer.main,
}
WITH_ARGUMENTS = {
    "serving": serving_overhead.main,
    "soak": soak.main,
}


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all of those without arguments."""
    if names and names[0] in WITH_ARGUMENTS:
        return WITH_ARGUMENTS[names[0]](names[1:])
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        known = ", ".join([*BENCHMARKS, *WITH_ARGUMENTS])
        print(f"unknown benchmark {unknown[0]!r}; there are {known}")
        return 2
    for name in names or BENCHMARKS:
        BENCHMARKS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
