"""Reading, converting and describing request traces: one file a format, one registry."""
