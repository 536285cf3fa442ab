"""A stat logger: finished requests and intervals as rows of a SQLite database."""
