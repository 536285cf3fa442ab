"""`python -m benchmarks NAME [options]`: measure, and print a table. Without a name: a list."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

import msgspec

__all__ = ["COMMANDS", "Command", "main"]


class Command(msgspec.Struct, frozen=True):
    """A table, or another command."""

    module: str
    """Of this package; its `main(argv)` returns the exit status."""
    about: str


COMMANDS: Final = {
    "attention-backends": Command("attention_backends", "attention backends on the small model"),
    "core-scaling": Command("core_scaling", "operations of the core against what is around them"),
    "core-steps": Command("core_steps", "a decode step of the engine core alone, beside vLLM's"),
    "floor": Command("floor", "what this machine can do, and the least time of each workload"),
    "peers": Command("peers", "other engines: list them, or install one"),
    "plugin-layer": Command("plugin_layer", "cost of the plugin layer in a step"),
    "quantization": Command("quantization", "what quantized weights cost in accuracy"),
    "serve": Command("serve", "servers under load with the small model, beside vLLM's"),
    "serving": Command("serving_overhead", "what serving costs when the model costs nothing"),
    "soak": Command("soak", "a server under mixed load for long: memory, open files, gauges"),
    "startup": Command("startup", "cold start to the first token, imports, and peak memory"),
    "tiny-model": Command("tiny_model", "a step around a model of one layer, and sampling alone"),
    "tokens": Command("tokens", "tokens/s of the small model: ours, peers, and the floor"),
}


def main(argv: Sequence[str]) -> int:
    """Run the command that is named, with the options after it."""
    if not argv or argv[0] in ("-h", "--help"):
        print(f"{__doc__}\n")
        for name, command in COMMANDS.items():
            print(f"{name:20} {command.about}")
        return 0
    name, *options = argv
    if name not in COMMANDS:
        print(f"unknown benchmark {name!r}; there are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    # Told to end, a command still ends the servers and engines that it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    return int(import_module(f"benchmarks.{COMMANDS[name].module}").main(options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
