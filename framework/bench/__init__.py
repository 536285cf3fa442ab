"""Load on an OpenAI-compatible server, and what is measured of it. Needs the extra `bench`."""
