"""A program that owns an engine and forks, for tests that kill it: `python -m … SETTINGS` (JSON).

Prints the process ids of its engine cores, and of its fork, which does nothing until it is killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import framework
from tests.processes.plugins_for_tests import drill

if __name__ == "__main__":
    engine = framework.launch(json.loads(sys.argv[1]), plugins=[drill])
    fork = os.fork()
    if fork == 0:
        while True:
            signal.pause()
    print(fork, flush=True)
    while True:
        signal.pause()
