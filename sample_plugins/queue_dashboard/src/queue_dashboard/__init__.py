"""HTTP routes: a page, and the same as JSON, that shows what the server does."""
