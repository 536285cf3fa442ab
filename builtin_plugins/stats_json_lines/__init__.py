"""Statistics as JSON objects, one a line, in a file."""
