"""Runs the loop and its API until the process is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import uvicorn

from data.errors import InputError
from planner.apart import run_apart
from planner.api.access import Access, load_tokens
from planner.api.app import create_app
from planner.api.desk import Desk, DeskSettings
from planner.loop.loop_parts import LoopParts
from planner.loop.retraining import Retraining, RetrainingSettings
from planner.loop.runner import PlannerLoop
from planner.outlets.gauges import PlannerMetrics
from planner.outlets.webhook import Webhook, WebhookSettings
from planner.plan_store.entry import EntryKind
from planner.plan_store.layout import Published
from router.serving.server_settings import ListenSettings, Tls, check_listen, split_address

CONNECTIONS = 512
"""Connections at a time. Calls have a bound of their own, below it, that answers with a problem document."""
GOODBYE_S = 10.0


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """How the service is run.

    Attributes:
        listen: Where the API listens.
        tokens: Tokens file; ``None`` = anyone may do anything, which only loopback allows.
        desk: Bounds of the API.
        webhook: Who is told of new versions; ``None`` = nobody.
        retraining: What is retrained beside the loop; ``None`` = nothing.
    """

    listen: ListenSettings
    tokens: Path | None = None
    desk: DeskSettings = field(default_factory=DeskSettings)
    webhook: WebhookSettings | None = None
    retraining: RetrainingSettings | None = None


class _Server(uvicorn.Server):
    """Leaves signals to us: its own handling raises them anew before the loop could end its processes."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class PlannerService:
    """The loop, its API and its webhook.

    Args:
        parts: What the loop is made of; ``on_published`` is replaced where a webhook is set.
        settings: How it is run.
        on_started: Told of the address.

    Raises:
        TokenFleetError: A file or setting is wrong.
    """

    def __init__(
        self, parts: LoopParts, settings: ServeSettings, on_started: Callable[[str], None] = lambda _: None
    ) -> None:
        check_listen(settings.listen, settings.tokens is not None)
        if settings.listen.tls is not None:
            _check_certificate(settings.listen.tls)
        self._settings, self._on_started = settings, on_started
        access = Access(None if settings.tokens is None else load_tokens(settings.tokens))
        self._webhook = None if settings.webhook is None else Webhook(settings.webhook)
        if self._webhook is not None:
            parts = replace(parts, on_published=self._tell)
        self.loop = PlannerLoop(parts)
        self._retraining: Retraining | None = None
        if settings.retraining is not None:
            self._retraining = Retraining(settings.retraining, lambda: self.loop.fleet)
        self._gone = threading.Event()

        def apart(*work: object, deadline_s: float) -> object:
            return run_apart(*work, deadline_s=deadline_s, stop=self._gone)  # type: ignore[arg-type]

        desk = Desk(self.loop, settings.desk, apart, time.time)
        metrics = PlannerMetrics(
            parts.store.current, self.loop.status, self._deliveries if self._webhook else None
        )
        self.app = create_app(desk, access, metrics)

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT.

        Raises:
            InputError: The address cannot be bound.
        """
        bound = self._bind()
        listen = self._settings.listen
        config = uvicorn.Config(
            self.app,
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=int(GOODBYE_S),
            ssl_certfile=None if listen.tls is None else listen.tls.certificate,
            ssl_keyfile=None if listen.tls is None else listen.tls.key,
        )
        server = _Server(config)
        workers = [threading.Thread(target=self.loop.run, name="tokenfleet-loop", daemon=True)]
        if self._retraining is not None:
            work = self._retraining.run
            workers.append(threading.Thread(target=work, name="tokenfleet-retraining", daemon=True))
        if self.loop.parts.measuring is not None:
            measure = self.loop.parts.measuring.run
            workers.append(threading.Thread(target=measure, name="tokenfleet-measuring", daemon=True))
        if self._webhook is not None:
            self._webhook.start()
        host, port = bound.getsockname()[:2]
        scheme = "http" if listen.tls is None else "https"
        for worker in workers:
            worker.start()
        try:
            shown = f"[{host}]" if ":" in host else host
            asyncio.run(self._serve(server, bound, f"{scheme}://{shown}:{port}"))
        finally:
            self._stop()
            for worker in workers:
                worker.join(GOODBYE_S)
            if self._webhook is not None:
                self._webhook.close(GOODBYE_S)

    async def _serve(self, server: uvicorn.Server, bound: socket.socket, address: str) -> None:
        def stop() -> None:
            self._stop()
            server.should_exit = True

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if server.started:
            self._on_started(address)
        await serving

    def _stop(self) -> None:
        self._gone.set()
        self.loop.stop()
        if self.loop.parts.measuring is not None:
            self.loop.parts.measuring.stop()
        if self._retraining is not None:
            self._retraining.stop()

    def _bind(self) -> socket.socket:
        host, port = split_address(self._settings.listen.address, "listen")
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            bound = socket.socket(family, socket.SOCK_STREAM)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((host, port))
        except OSError as error:
            raise InputError(
                f"cannot listen there: {error.strerror}", field="listen", value=self._settings.listen.address
            ) from error
        return bound

    def _tell(self, published: Published) -> None:
        if self._webhook is not None and published.entry.kind is not EntryKind.RENEWED:
            self._webhook.tell(published)

    def _deliveries(self) -> tuple[int, int]:
        return (0, 0) if self._webhook is None else (self._webhook.taken, self._webhook.failed)


def _check_certificate(tls: Tls) -> None:
    """Raise ``InputError`` unless the certificate and its key can be used: before anything is started."""
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(tls.certificate, tls.key)
    except OSError as error:
        files = f"{tls.certificate}, {tls.key}"
        raise InputError(
            f"cannot be used: {error.strerror or error}",
            source=files,
            expected="a PEM certificate chain and its key",
        ) from error
