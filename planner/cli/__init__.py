"""The ``tokenfleet`` command."""
