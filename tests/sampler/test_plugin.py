"""What the plugin registers."""

from __future__ import annotations

import subprocess
import sys

from builtin_plugins.sampler_default.plugin import plugin
from hookspecs.contracts.logits import Sampler


def test_offers_the_sampler_default() -> None:
    (provider,) = plugin.register_samplers()
    module, _, name = provider.target.partition(":")
    target = getattr(__import__(module, fromlist=[name]), name)
    assert provider.name == "default"
    assert issubclass(target, Sampler)


def test_importing_the_plugin_loads_nothing_heavy() -> None:
    code = (
        "import sys, builtin_plugins.sampler_default.plugin;"
        "print([m for m in ('torch', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
