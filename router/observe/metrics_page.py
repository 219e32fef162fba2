"""Metrics and status over HTTP, on threads of their own so that a scrape never holds up a decision."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from router.observe.metrics import RouterMetrics

JOIN_S = 2.0
SLOWEST_CALLER_S = 10.0
Status = Callable[[], dict[str, Any]]
"""What ``/status`` answers, ready for JSON."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = SLOWEST_CALLER_S

    def log_message(self, format: str, *arguments: object) -> None:
        """Scrapes are not worth a line each."""


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


def serve_metrics(metrics: RouterMetrics, host: str, port: int, status: Status = dict) -> MetricsPage:
    """Serve ``metrics`` at ``/metrics`` and ``status`` at ``/status``; any other path is not found.

    Raises:
        OSError: The address cannot be bound.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    server = make_server(
        host,
        port,
        _application(make_wsgi_app(registry), status),
        server_class=_Server6 if ":" in host else _Server,
        handler_class=_Handler,
    )
    thread = Thread(target=server.serve_forever, name="tokenfleet-metrics", daemon=True)
    thread.start()
    return MetricsPage(server.server_port, server, thread)


def _application(metrics: Any, status: Status) -> Any:
    """A WSGI application for both pages."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            page: Iterable[bytes] = metrics(environ, start_response)
            return page
        if path == "/status":
            start_response("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(status(), indent=1).encode()]
        start_response("404 Not Found", [("Content-Type", "text/plain")])
        return [b"see /metrics and /status\n"]

    return answer
