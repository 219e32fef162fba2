"""The decision path: endpoint state, prefix index, filters and policies."""
