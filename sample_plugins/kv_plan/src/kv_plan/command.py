"""`framework kv-plan`. The process of the command line."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence

import msgspec
from hookspecs.config import Dtype
from hookspecs.contracts.frontend import CliCommand
from hookspecs.errors import ConfigError

from kv_plan.model_shape import ModelShape, read_model_shape
from kv_plan.plan import DTYPES, Budget, make_plan
from kv_plan.show import lines

__all__ = ["KVPlanCommand"]

_GIB = 1 << 30
_DEFAULT_GIB = 8


class KVPlanCommand(CliCommand):
    """What is not given as an argument is taken from the settings, which every command has."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "model", metavar="MODEL", help="directory with config.json, or the file"
        )
        parser.add_argument(
            "--gib",
            type=_gib,
            help="GiB for the cache, of each rank (default: cache.num_blocks or cache.kv_bytes if "
            f"set, else {_DEFAULT_GIB})",
        )
        parser.add_argument(
            "--dtype",
            choices=sorted(DTYPES),
            help="of keys and values (default: cache.kv_dtype or model.dtype if set, else the "
            "checkpoint's)",
        )
        parser.add_argument(
            "--tensor-parallel",
            type=_count,
            metavar="N",
            help="ranks that share each layer (default: executor.tensor_parallel_size)",
        )
        parser.add_argument(
            "--length",
            type=_count,
            action="append",
            metavar="TOKENS",
            help="prompt and output of a request; may be given several times (default: some up to "
            "the model's limit)",
        )
        parser.add_argument("--json", action="store_true", help="print JSON for programs")

    def run(self, arguments: Namespace, rest: Sequence[str] = ()) -> int:
        """Prints the plan; 0. What is raised becomes a message and an exit code."""
        if rest:
            raise ConfigError(f"kv-plan takes nothing after --, but got {rest[0]!r}. Leave it out")
        shape = read_model_shape(arguments.model)
        plan = make_plan(arguments.model, shape, self._budget(arguments, shape))
        if arguments.json:
            print(msgspec.json.format(msgspec.json.encode(plan), indent=2).decode())
        else:
            print("\n".join(lines(plan)))
        return 0

    def _budget(self, arguments: Namespace, shape: ModelShape) -> Budget:
        config = self.context.config
        cache, gib = config.cache, arguments.gib
        if gib is not None:
            kv_bytes, num_blocks = int(gib * _GIB), None
        else:
            kv_bytes, num_blocks = cache.kv_bytes or _DEFAULT_GIB * _GIB, cache.num_blocks
        return Budget(
            kv_bytes=kv_bytes,
            num_blocks=num_blocks,
            dtype=self._dtype(arguments.dtype, shape),
            tensor_parallel_size=arguments.tensor_parallel or config.executor.tensor_parallel_size,
            block_size=cache.block_size,
            max_num_batched_tokens=config.scheduler.max_num_batched_tokens,
            lengths=tuple(arguments.length or ()),
        )

    def _dtype(self, given: str | None, shape: ModelShape) -> str:
        settings = (self.context.config.cache.kv_dtype, self.context.config.model.dtype)
        found = next((str(dtype) for dtype in settings if dtype is not Dtype.AUTO), None)
        dtype = given or found or shape.dtype or "float32"
        if dtype not in DTYPES:
            raise ConfigError(
                f"the checkpoint has dtype {dtype!r}, which is no type of keys and values. Give "
                f"--dtype, one of {', '.join(sorted(DTYPES))}"
            )
        return dtype


def _gib(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 2**30:
        raise ArgumentTypeError(f"{text!r} is not a number above 0, and at most {2**30}")
    return value


def _count(text: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 11 else 0
    if not 1 <= value < 2**31:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to {2**31 - 1}")
    return value
