"""A server of the scripted model, for tests that stop it: `python -m … SETTINGS` (JSON).

Prints its address once requests are taken; its exit code is that of `framework.serve`.
"""

from __future__ import annotations

import json
import sys

import framework
from tests.processes.plugins_for_tests import drill

if __name__ == "__main__":
    sys.exit(
        framework.serve(
            json.loads(sys.argv[1]),
            plugins=[drill],
            report=lambda line: print(line, file=sys.stderr),
            serving=lambda address, plugins: print(address, flush=True),
        )
    )
