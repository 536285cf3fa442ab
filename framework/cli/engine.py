"""A running engine for a command."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from framework.cli.command import Handle, Session
from framework.cli.startup import Startup
from framework.config import require_model
from framework.plugins.manager import PluginManager
from hookspecs.config import EngineConfig
from hookspecs.errors import ConfigError

__all__ = ["add_model_argument", "chosen_config", "launch_engine", "open_engine", "serve_engine"]


def launch_engine(
    config: EngineConfig,
    *,
    report: Callable[[str], None],
    progress: Callable[[str, float], None],
) -> Handle:
    """`framework.launch`, imported now: it brings the model libraries with it."""
    from framework.launcher import launch

    return launch(config, report=report, progress=progress)


def add_model_argument(parser: ArgumentParser) -> None:
    """The optional positional MODEL."""
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="local directory, hub name, package:NAME or .gguf file; the same as --model.name",
    )


def serve_engine(
    config: EngineConfig,
    *,
    report: Callable[[str], None],
    progress: Callable[[str, float], None],
    serving: Callable[[str, PluginManager], None],
) -> int:
    """`framework.serve`, imported now."""
    from framework.launcher import serve

    return serve(config, report=report, progress=progress, serving=serving)


def chosen_config(
    arguments: Namespace, session: Session, *, default_model: str = ""
) -> EngineConfig:
    """The session's configuration with its model. Raises ConfigError without one, or when two
    are named."""
    config = session.config
    given = getattr(arguments, "model", None)
    origin = session.resolved.origins["model.name"]
    if given and origin == "command line" and config.model.name != given:
        raise ConfigError(
            f"two models are named: {given!r} and --model.name {config.model.name!r}. Give one."
        )
    name = given or config.model.name or default_model
    config = msgspec.structs.replace(config, model=msgspec.structs.replace(config.model, name=name))
    require_model(config)
    return config


@contextmanager
def open_engine(
    arguments: Namespace, session: Session, *, default_model: str = ""
) -> Iterator[Handle]:
    """The engine of the session's configuration, closed at the end."""
    config = chosen_config(arguments, session, default_model=default_model)
    with Startup() as startup:
        handle = session.launch(config, report=startup.report, progress=startup.progress)
    try:
        yield handle
    finally:
        handle.shutdown()
