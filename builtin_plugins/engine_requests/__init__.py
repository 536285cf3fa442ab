"""The engine command `requests`: what runs and what waits."""
