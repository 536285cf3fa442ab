"""Starting engines: `launch`, `launch_async` and `serve`. Launcher process."""

from framework.launcher.asynchronous import AsyncEngine, launch_async
from framework.launcher.service import serve
from framework.launcher.sync import Engine, launch

__all__ = ["AsyncEngine", "Engine", "launch", "launch_async", "serve"]
