"""Observers: the last events before an engine failed, in a file."""
