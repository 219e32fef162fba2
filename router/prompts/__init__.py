"""From a prompt to block hashes within a tenant's scope, and whether the engine's own agree."""
