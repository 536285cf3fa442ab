"""Paged KV cache manager with prefix caching, sliding windows and hybrid groups."""
