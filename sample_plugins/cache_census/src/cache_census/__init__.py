"""An engine command and the HTTP route that asks for it: who holds the blocks of the KV cache."""
