"""An executor whose worker runs in a thread of its own."""
