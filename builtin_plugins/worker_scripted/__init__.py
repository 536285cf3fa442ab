"""The worker `scripted`: emits given tokens or logits, and checks what it is told to compute."""
