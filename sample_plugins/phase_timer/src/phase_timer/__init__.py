"""Wrappers of the four step phases: how long each takes."""
