"""How a command ends: exit codes and messages for everything that can be raised."""

from __future__ import annotations

import os
import select
import sys
import traceback
from collections.abc import Callable
from typing import Final

from framework.process.exit_codes import ExitCode
from hookspecs.errors import (
    ConfigError,
    FrameworkError,
    InvalidRequestError,
    PluginConflictError,
    UnsupportedFeatureError,
)

__all__ = ["EXIT_CODES", "FAILURE", "INTERRUPTED", "PIPE_CLOSED", "USAGE", "exit_code_of"]

FAILURE: Final = 1
USAGE: Final = 2
"""What was asked for is wrong: arguments, settings, a request."""
INTERRUPTED: Final = 130
"""128 + SIGINT, as shells count."""
PIPE_CLOSED: Final = 141
"""128 + SIGPIPE."""
EXIT_CODES: Final = {
    0: "done",
    FAILURE: "it failed: plugin, model, engine, a check, or a request that ended with an error",
    USAGE: "what was asked for is wrong: arguments, settings, plugin options, a request, two "
    "plugins of one name",
    ExitCode.ENGINE_FAILED: "an engine core has died, or a front-end process (`framework serve`)",
    INTERRUPTED: "interrupted",
    PIPE_CLOSED: "whoever read standard output has gone",
}
"""Of the whole command line."""

USAGE_ERRORS: Final = (
    ConfigError,
    InvalidRequestError,
    PluginConflictError,
    UnsupportedFeatureError,
)


def exit_code_of(run: Callable[[], int]) -> int:
    """Run a command; an expected error becomes one message and a code.

    With FRAMEWORK_DEBUG=1 the traceback comes too. Other exceptions are defects and pass.
    """
    try:
        code = run()
        sys.stdout.flush()
        return code
    except FrameworkError as error:
        if os.environ.get("FRAMEWORK_DEBUG", "") not in ("", "0", "false"):
            traceback.print_exc()
        print(f"framework: error: {error}", file=sys.stderr)
        return USAGE if isinstance(error, USAGE_ERRORS) else FAILURE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        if not _stdout_is_closed():
            raise
        return PIPE_CLOSED
    except SystemExit as stop:  # argparse has printed its message
        return stop.code if isinstance(stop.code, int) else USAGE if stop.code else 0


def _stdout_is_closed() -> bool:
    """Whether the reader of standard output has gone; then what is left to write is dropped."""
    try:
        descriptor = sys.stdout.fileno()
    except OSError:  # no file: captured
        return False
    poll = select.poll()
    poll.register(descriptor, 0)  # errors are always reported
    if not any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
        return False
    # The interpreter flushes once more when it ends, and would complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    return True
