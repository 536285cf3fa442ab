"""A runner of its own: an n-gram language model made from a text file."""
