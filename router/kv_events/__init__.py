"""KV-cache events of engines: what they stored and evicted, from the wire into the prefix index."""
