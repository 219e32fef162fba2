"""What a running router shows: metrics, status, spans and log lines."""
