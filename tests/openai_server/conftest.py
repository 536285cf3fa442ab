from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Asynchronous tests are marked `anyio` and run on asyncio."""
    return "asyncio"
