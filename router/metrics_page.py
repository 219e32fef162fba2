"""The metrics page over HTTP, on a thread of its own so that a scrape never holds up a decision."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server

from router.metrics import RouterMetrics

JOIN_S = 2.0


@dataclass(slots=True)
class MetricsPage:
    """A running page; ``port`` is the one that the system gave where 0 was asked for."""

    port: int
    _server: WSGIServer
    _thread: Thread

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=JOIN_S)


def serve_metrics(metrics: RouterMetrics, host: str, port: int) -> MetricsPage:
    """Serve ``metrics`` at ``http://host:port/metrics``.

    Raises:
        OSError: The address cannot be bound.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    server, thread = start_http_server(port, addr=host, registry=registry)
    return MetricsPage(server.server_address[1], server, thread)
