"""`framework plugins new`: a complete plugin package of any kind, from templates."""
