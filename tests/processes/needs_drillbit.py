"""A module that can not be imported: its package is missing."""

import drillbit_that_nobody_has  # type: ignore[import-not-found]  # noqa: F401

Worker = object
