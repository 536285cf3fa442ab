"""The `continuous` scheduler: continuous batching with chunked prefill and preemption."""
