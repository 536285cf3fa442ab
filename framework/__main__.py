"""`python -m framework` is the command `framework`."""

import sys

from framework.cli.main import main

sys.exit(main())
