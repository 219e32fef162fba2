"""The client for programs without an event loop. Safe to share between threads."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TypeVar

import grpc

from router.channel_options import client_options
from router.client.attempt import Attempt, RefusedError, ReportBuffer
from router.client.query import Placement, Query, Refusal, from_wire, to_wire
from router.client.retries import backoffs, may_retry, pause_after
from router.client.settings import ClientSettings, Identity
from router.pb.v1 import router_pb2 as pb
from router.pb.v1.router_pb2_grpc import RouterStub

ReplyT = TypeVar("ReplyT")


class RouterClient:
    """Asks one router. Use it as ``with``: leaving delivers what is still to be reported.

    Args:
        target: ``host:port`` of the router.
        settings: Time limits and bounds.
        identity: Credentials.
        generator: Jitter of retries.
    """

    def __init__(
        self,
        target: str,
        settings: ClientSettings | None = None,
        identity: Identity | None = None,
        generator: random.Random | None = None,
    ) -> None:
        self.settings = settings or ClientSettings()
        identity = identity or Identity()
        options = client_options(self.settings.message_bytes)
        credentials = identity.credentials()
        self._channel = (
            grpc.insecure_channel(target, options)
            if credentials is None
            else grpc.secure_channel(target, credentials, options)
        )
        self._stub = RouterStub(self._channel)
        self._metadata = identity.metadata()
        self._random = generator or random.Random()
        self.reports = ReportBuffer(self.settings.most_waiting_reports)
        self._work = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="tokenfleet-reports", daemon=True)
        self._thread.start()

    def __enter__(self) -> RouterClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Deliver waiting reports within their deadline, then close the connection."""
        with self._work:
            self._closing = True
            self._work.notify()
        self._thread.join(timeout=2 * self.settings.report_deadline_s)
        self._channel.close()

    def ask(self, query: Query, deadline_s: float | None = None, *, patient: bool = False) -> Placement | Refusal:
        """Where should this go? A placement holds a lease: end it with reports, or use ``route``.

        Args:
            query: The request.
            deadline_s: Time limit of all of this; ``None`` = that of the settings.
            patient: After a refusal that says when to come again, wait so long and ask again, if the deadline
                leaves time for it; else the refusal is given at once.

        Raises:
            grpc.RpcError: The router could not be reached in time, or the call itself is wrong.
        """
        message = to_wire(query)
        end_s = time.monotonic() + (self.settings.deadline_s if deadline_s is None else deadline_s)
        while True:
            reply = self._retried(
                lambda timeout: self._stub.Route(message, timeout=timeout, metadata=self._metadata),
                max(end_s - time.monotonic(), 0.001),
            )
            answer = from_wire(reply)
            pause_s = pause_after(answer, end_s - time.monotonic(), self._random) if patient else None
            if pause_s is None:
                return answer
            time.sleep(pause_s)

    @contextmanager
    def route(self, query: Query, deadline_s: float | None = None, *, patient: bool = False) -> Iterator[Attempt]:
        """Ask as :meth:`ask`, hand out the attempt, and report how it ended, whatever happens inside.

        Raises:
            RefusedError: There is no place.
            grpc.RpcError: As ``ask``.
        """
        answer = self.ask(query, deadline_s, patient=patient)
        if isinstance(answer, Refusal):
            raise RefusedError(answer)
        attempt = Attempt(answer, self.send)
        try:
            yield attempt
        except BaseException as error:
            attempt.end_by(error)
            raise
        attempt.end_by(None)

    def explain(self, query: Query, deadline_s: float | None = None) -> pb.ExplainReply:
        """Why would this request go where it would go? Nothing is charged."""
        message = pb.ExplainRequest(request=to_wire(query))
        reply: pb.ExplainReply = self._retried(
            lambda timeout: self._stub.Explain(message, timeout=timeout, metadata=self._metadata), deadline_s
        )
        return reply

    def report(self, events: Sequence[pb.ReportEvent]) -> pb.ReportSummary:
        """Deliver events now and say what became of them.

        Raises:
            grpc.RpcError: As ``ask``.
        """
        summary: pb.ReportSummary = self._retried(
            lambda timeout: self._stub.Report(iter(events), timeout=timeout, metadata=self._metadata), None
        )
        return summary

    def send(self, event: pb.ReportEvent) -> None:
        """Deliver an event soon, on the client's own thread."""
        with self._work:
            self.reports.add(event)
            self._work.notify()

    def _run(self) -> None:
        while True:
            with self._work:
                self._work.wait_for(lambda: self.reports or self._closing)
                events = self.reports.take()
            if events:
                self._deliver(events)
            elif self._closing:
                return

    def _deliver(self, events: list[pb.ReportEvent]) -> None:
        try:
            self._retried(
                lambda timeout: self._stub.Report(iter(events), timeout=timeout, metadata=self._metadata),
                self.settings.report_deadline_s,
            )
        except grpc.RpcError:
            # Without a report the leases end by their own time limit.
            with self._work:
                self.reports.dropped += len(events)

    def _retried(self, call: Callable[[float], ReplyT], deadline_s: float | None) -> ReplyT:
        end_s = time.monotonic() + (self.settings.deadline_s if deadline_s is None else deadline_s)
        for pause_s in backoffs(self.settings, self._random):
            try:
                return call(max(end_s - time.monotonic(), 0.001))
            except grpc.RpcError as error:
                if not may_retry(error.code()) or time.monotonic() + pause_s >= end_s:
                    raise
            time.sleep(pause_s)
        raise AssertionError("pauses never end")
