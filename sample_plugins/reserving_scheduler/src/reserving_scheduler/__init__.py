"""A scheduler that never preempts: a request starts when its largest length is sure to fit."""
