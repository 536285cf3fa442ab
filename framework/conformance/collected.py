"""Collected by pytest in the zero-code form, which puts the suites of the plugin in its place."""
