"""Helpers that plugins may import: `hookspecs` only, heavy libraries in modules of their own."""
