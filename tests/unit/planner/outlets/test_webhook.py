"""The webhook against a real receiver: signed, repeated where it helps, never in the way."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from data.errors import SettingError
from data.plan import PlanDocument, PlanStatus
from data.plan_io import plan_from_json
from planner.outlets.webhook import Webhook, WebhookSettings, message, signature
from planner.plan_store.layout import Published
from planner.plan_store.store import PlanStore

SECRET = b"0123456789abcdef"
PLAN = PlanDocument(
    "plan-1", None, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2026-01-01T00:15:00Z", 'a "fleet"\n', {},
    PlanStatus.OPTIMAL, 1.0, 1.0, 1.0, "test", (),
)  # fmt: skip


class Receiver(ThreadingHTTPServer):
    """Answers with the statuses it is given, in turn."""

    statuses: list[int]
    got: list[tuple[dict[str, str], bytes]]


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((dict(self.headers), body))
        self.send_response(self.server.statuses.pop(0))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Quiet."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver(("127.0.0.1", 0), Handler)
    made.statuses, made.got = [], []
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.fixture
def published(tmp_path: Path) -> Published:
    store = PlanStore(tmp_path / "plans")
    store.lead(1000.0)
    store.publish(PLAN, 1000.0, reason='said "so"')
    found = store.current()
    assert found is not None
    return found


def hook(receiver: Receiver, pauses: list[float], **given: object) -> Webhook:
    url = f"http://127.0.0.1:{receiver.server_port}/hook"
    settings = WebhookSettings(url, SECRET, timeout_s=5.0, **given)  # type: ignore[arg-type]
    return Webhook(settings, pauses.append, lambda: 1234.4)


def test_a_delivery_is_whole_and_signed(receiver: Receiver, published: Published) -> None:
    receiver.statuses = [204]
    assert hook(receiver, []).deliver(published).taken
    headers, body = receiver.got[0]
    assert headers["X-TokenFleet-Signature"] == signature(SECRET, headers["X-TokenFleet-Time"], body)
    assert (headers["X-TokenFleet-Time"], headers["X-TokenFleet-Delivery"]) == ("1234", "1-1")
    content = json.loads(body)
    assert content["event"] == "published"
    assert plan_from_json(json.dumps(content["plan"])) == PLAN
    assert content["entry"]["reason"] == 'said "so"'


def test_a_receiver_in_trouble_is_asked_again_with_longer_pauses(receiver: Receiver, published: Published) -> None:
    receiver.statuses = [500, 503, 429, 200]
    pauses: list[float] = []
    done = hook(receiver, pauses).deliver(published)
    assert (done.taken, done.attempts, pauses) == (True, 4, [1.0, 2.0, 4.0])
    assert len({headers["X-TokenFleet-Delivery"] for headers, _ in receiver.got}) == 1


@pytest.mark.parametrize(("status", "attempts"), [(400, 1), (401, 1), (302, 3), (500, 3)])
def test_what_cannot_get_better_is_not_repeated(
    receiver: Receiver, published: Published, status: int, attempts: int
) -> None:
    receiver.statuses = [status] * 3
    done = hook(receiver, [], attempts=3).deliver(published)
    assert (done.taken, done.attempts) == (False, attempts)
    assert str(status) in done.answer


def test_nobody_there_is_a_failed_delivery_not_an_error(published: Published) -> None:
    made = Webhook(WebhookSettings("http://127.0.0.1:9/hook", attempts=2), lambda _: None)
    assert not made.deliver(published).taken


def test_deliveries_happen_in_the_background_in_order(receiver: Receiver, published: Published) -> None:
    receiver.statuses = [200, 400, 200]
    made = hook(receiver, [])
    made.start()
    for _ in range(3):
        made.tell(published)
    made.close(10.0)
    assert (made.taken, made.failed) == (2, 1)


def test_the_newest_versions_stay_when_too_many_wait(receiver: Receiver, published: Published) -> None:
    made = hook(receiver, [])
    for _ in range(105):
        made.tell(published)
    assert made.failed == 5
    receiver.statuses = [200] * 100
    made.start()
    made.close(30.0)
    assert made.taken == 100


def test_the_signature_covers_time_and_body(published: Published) -> None:
    body = message(published)
    assert signature(SECRET, "1", body) != signature(SECRET, "2", body)
    assert signature(SECRET, "1", body) != signature(SECRET, "1", body + b" ")


def test_settings_are_checked() -> None:
    for wrong in (
        {"url": "ftp://x"},
        {"secret": b"short"},
        {"timeout_s": 0.0},
        {"attempts": 0},
        {"backoff_s": -1.0},
    ):
        with pytest.raises(SettingError):
            WebhookSettings(**{"url": "http://x", **wrong})  # type: ignore[arg-type]
