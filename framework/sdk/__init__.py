"""Helpers that plugins may import. Imports `hookspecs` only; heavy libraries where they are used."""
