"""How the front end is found."""

from __future__ import annotations

import subprocess
import sys

from builtin_plugins.openai_server.options import OpenAIOptions
from builtin_plugins.openai_server.plugin import plugin
from builtin_plugins.openai_server.server import OpenAIServer


def test_it_registers_the_front_end_openai() -> None:
    (provider,) = plugin.register_frontends()
    assert provider.name == "openai"
    assert provider.target == f"{OpenAIServer.__module__}:{OpenAIServer.__qualname__}"
    assert provider.options is OpenAIOptions
    assert provider.extra == "serve"


def test_the_plugin_loads_without_what_the_server_needs() -> None:
    code = (
        "import sys; import builtin_plugins.openai_server.plugin; "
        "print({'starlette', 'uvicorn', 'torch', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
