"""Strict reading of documents into frozen dataclasses: every fault collected with its place."""
