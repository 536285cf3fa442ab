"""A stat logger: logs every request that took longer than a limit."""
