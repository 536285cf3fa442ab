"""The sampler `default`: every sampling parameter, for a batch, on any torch device."""
