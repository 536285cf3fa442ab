"""What the suites run plugins in: pretended kernels, engines, requests."""
