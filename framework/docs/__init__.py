"""Generates `docs/reference/` from the contract: `python -m framework.docs [--check]`.

Text comes from docstrings, `Meta` descriptions and signatures as written in the source, so
what an author reads is what the contract says. Output is deterministic.
"""
