"""A tracer: one JSON object for each output of a request that ended, in a file."""
