"""A logits processor: no sequence of n tokens occurs twice in a request's text."""
