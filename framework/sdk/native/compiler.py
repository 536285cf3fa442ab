"""The system's C compiler, and what it is told."""

from __future__ import annotations

import errno
import functools
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from framework.sdk.native.errors import KernelsUnavailable

INCLUDE = Path(__file__).parent / "include"
"""Where `fw_kernel.h` is."""

_NAMES = ("cc", "gcc", "clang")
_TIMEOUT_S = 180.0
_ERROR_LINES = 8

# No -ffast-math: NaN and infinity must be seen.
_FLAGS = (
    "-std=c11",
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-pthread",
)


@functools.cache
def processor() -> str:
    """What decides on the code that `-march=native` makes, as far as the system tells."""
    facts = [platform.machine()]
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        facts += [platform.platform(), platform.processor(), platform.node()]
    else:
        names = ("flags", "Features", "model name", "cpu family", "model", "stepping", "CPU part")
        facts += sorted({line for line in lines if line.partition(":")[0].strip() in names})
    return "\n".join(facts)


def machine_flags() -> list[str]:
    """For a library that runs on this processor and on none else."""
    arm = platform.machine() in ("aarch64", "arm64")
    flags = [*_FLAGS, "-mcpu=native" if arm else "-march=native"]
    if "avx512f" in processor().split():
        # Compilers prefer half of the vector, for processors that slowed down otherwise.
        flags.append("-mprefer-vector-width=512")
    return flags


class Compiler:
    """One command that compiles C."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)

    @property
    def identity(self) -> str:
        """The command, and the state of the program's file in place of its version, so that
        nothing has to be run to find a library that is there."""
        path = Path(self._command[0]).resolve()
        state = path.stat()
        return f"{self._command} {path} {state.st_size} {state.st_mtime_ns}"

    def build(self, source: Path, target: Path, flags: Sequence[str]) -> None:
        """Compiles `source` to the library `target`. KernelsUnavailable with the first lines of
        what the compiler says."""
        command = [
            *self._command, *machine_flags(), *flags,
            f"-I{INCLUDE}", str(source), "-o", str(target), "-lm",
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LC_ALL": "C"},
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise self._failed(source, f"it takes longer than {_TIMEOUT_S:.0f} s") from error
        except OSError as error:
            raise self._failed(source, str(error)) from error
        if done.returncode != 0:
            said = done.stdout.decode("utf-8", "replace").strip()
            if os.strerror(errno.ENOSPC) in said:
                raise KernelsUnavailable(
                    f"there is no room to build {source.name!r} in {str(target.parent)!r} or in "
                    f"the directory of temporary files: {os.strerror(errno.ENOSPC)}. Make room, or "
                    "set FRAMEWORK_CACHE_DIR or TMPDIR to directories that have some."
                )
            raise self._failed(source, said or f"it says nothing and gives {done.returncode}")

    def _failed(self, source: Path, said: str) -> KernelsUnavailable:
        lines = [line for line in said.splitlines() if line.strip()]
        # The first error comes first: a log may show the first line only.
        lines.sort(key=lambda line: "error" not in line)
        text = "\n".join(lines[:_ERROR_LINES])
        return KernelsUnavailable(
            f"the C compiler {shlex.join(self._command)!r} can not build {str(source)!r}: {text}\n"
            "Install gcc 9 or clang 10 or later, or name another compiler in the environment "
            "variable CC."
        )


def find_compiler() -> Compiler:
    """That of the environment variable CC, else the first of cc, gcc and clang.
    KernelsUnavailable if there is none."""
    given = os.environ.get("CC", "")
    try:
        command = shlex.split(given)
    except ValueError as error:
        raise KernelsUnavailable(
            f"the environment variable CC is {given!r}, which is no command ({error}). Set it to a "
            "C compiler, or unset it."
        ) from error
    for name in command[:1] or _NAMES:
        path = shutil.which(name)
        if path is not None:
            return Compiler([path, *command[1:]])
    if command:
        raise KernelsUnavailable(
            f"the C compiler {command[0]!r} of the environment variable CC is not on the path. Set "
            "CC to one that is, or unset it."
        )
    raise KernelsUnavailable(
        f"there is no C compiler: none of {', '.join(_NAMES)} is on the path. Install gcc or "
        "clang, or name a compiler in the environment variable CC."
    )
