"""Options of gRPC channels and servers, kept together because each end must stay inside the other's limits.

A server that allows fewer pings than its clients send closes their connections, and a message may pass one end and
fail at the other; so both ends take their numbers from here.
"""

from __future__ import annotations

PING_EVERY_S = 30
"""An idle client asks this often whether the connection still stands."""
PING_ANSWER_S = 10
"""... and gives it up when nothing comes back for this long."""
LEAST_PING_GAP_S = 5
"""The server takes pings closer together than this as abuse; well below ``PING_EVERY_S``."""
MESSAGE_BYTES = 4 * 1024 * 1024
"""Largest message either end sends or takes: 500,000 block hashes, or a million token ids."""

Options = list[tuple[str, int]]


def client_options(message_bytes: int = MESSAGE_BYTES) -> Options:
    """Options of a client's channel."""
    return [
        ("grpc.keepalive_time_ms", PING_EVERY_S * 1000),
        ("grpc.keepalive_timeout_ms", PING_ANSWER_S * 1000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.max_send_message_length", message_bytes),
        ("grpc.max_receive_message_length", message_bytes),
        # Retries are the client's own: it knows which calls may be asked again.
        ("grpc.enable_retries", 0),
    ]


def server_options(message_bytes: int = MESSAGE_BYTES) -> Options:
    """Options of the server."""
    return [
        ("grpc.http2.min_ping_interval_without_data_ms", LEAST_PING_GAP_S * 1000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", PING_EVERY_S * 1000),
        ("grpc.keepalive_timeout_ms", PING_ANSWER_S * 1000),
        ("grpc.max_send_message_length", message_bytes),
        ("grpc.max_receive_message_length", message_bytes),
        # Two servers on one port would split the callers between two views of the fleet.
        ("grpc.so_reuseport", 0),
    ]
