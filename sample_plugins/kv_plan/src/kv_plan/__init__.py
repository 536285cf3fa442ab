"""A command: what fits into a KV cache."""
