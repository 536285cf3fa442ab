"""An eviction policy: the cached block that was used least often goes first, with aging."""
