"""A side channel: where the time of steps goes, measured in the core and in each worker."""
