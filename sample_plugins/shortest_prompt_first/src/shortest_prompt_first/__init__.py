"""A scheduling policy: requests with short prompts start first; waiting makes up for length."""
