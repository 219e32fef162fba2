"""Probes over real HTTP: what counts as a completion, and that one engine's trouble stays its own (F105)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from router.feeds.completion_probe import CompletionProbe, ProbeError, ProbeTarget
from router.feeds.probe_settings import ProbeSettings
from router.feeds.prober import PASSED, Prober

QUICK = ProbeSettings(deadline_s=0.3, first_pause_s=0.05, longest_pause_s=0.05)
GOOD = {"model": "m@1", "choices": [{"text": "x"}]}
SECRET = "key-of-the-engines"


class Engine:
    """Lists its model at once; what completions answer is set by hand."""

    def __init__(self, status: int = 200, answer: object = GOOD, key: str = "", hang: bool = False) -> None:
        self.status, self.answer, self.key, self.hang = status, answer, key, hang
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/{kind:.*}", self._complete)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)

    async def __aenter__(self) -> Engine:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.address = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m@1"}]})

    async def _complete(self, request: web.Request) -> web.Response:
        self.paths.append(request.path)
        self.asked.append(await request.json())
        if self.hang:
            await asyncio.Event().wait()
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.Response(status=401, text="who are you? you said ok")
        if isinstance(self.answer, str):
            return web.Response(status=self.status, text=self.answer)
        return web.json_response(self.answer, status=self.status)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 20))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


class Told:
    """What a prober told."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.failed: list[tuple[str, str]] = []

    def prober(self, settings: ProbeSettings = QUICK, key: str = "") -> Prober:
        probe = CompletionProbe(settings, key)
        note = lambda name, reason: self.failed.append((name, reason))  # noqa: E731
        return Prober(settings, probe, self.passed.append, note, time.monotonic, np.random.default_rng(1))


def target(engine: Engine, name: str = "e") -> ProbeTarget:
    return ProbeTarget(name, engine.address, "m@1")


@pytest.mark.parametrize(
    ("status", "answer", "reason"),
    [
        (500, {"error": "loading"}, "status"),
        (503, {"error": "loading"}, "status"),
        (302, "", "status"),
        (404, {"error": "no such model"}, "model"),
        (403, "", "key"),
        (200, "<html>", "protocol"),
        (200, {"choices": []}, "protocol"),
        (200, "[" * 100_000, "protocol"),
        (200, [GOOD], "protocol"),
        (200, {**GOOD, "model": "m@2"}, "other_model"),
        (200, "x" * (2**20 + 1), "protocol"),
    ],
)
def test_only_a_completion_of_exactly_this_model_passes_f105(status: int, answer: object, reason: str) -> None:
    """F105: the model is listed all the while."""

    async def scenario() -> None:
        probe = CompletionProbe(QUICK)
        async with Engine(status, answer) as engine:
            with pytest.raises(ProbeError) as failed:
                await probe.ask(target(engine))
            assert failed.value.reason == reason
            engine.status, engine.answer = 200, GOOD
            await probe.ask(target(engine))
            assert {asked["model"] for asked in engine.asked} == {"m@1"}
            assert {asked["max_tokens"] for asked in engine.asked} == {1}
        with pytest.raises(ProbeError) as refused:
            await probe.ask(target(engine))
        assert refused.value.reason == "connect"
        await probe.close()

    run(scenario)


def test_the_form_follows_the_path() -> None:
    async def scenario() -> None:
        probe = CompletionProbe(ProbeSettings(path="/v1/chat/completions"))
        async with Engine() as engine:
            await probe.ask(target(engine))
            assert engine.paths == ["/v1/chat/completions"]
            assert "messages" in engine.asked[0]
            assert "prompt" not in engine.asked[0]
        await probe.close()

    run(scenario)


def test_a_missing_key_is_told_and_neither_key_nor_answer_is_logged_f105(caplog: pytest.LogCaptureFixture) -> None:
    """F105: the log says what to set, without the key, the prompt or what the engine said."""

    async def scenario() -> None:
        async with Engine(key=SECRET) as engine:
            for key, failures in (("", {"key"}), ("wrong-key", {"key"}), (SECRET, set())):
                told = Told()
                prober = told.prober(key=key)
                prober.apply({"e": target(engine)}, ["e"])
                await until(lambda told=told: bool(told.passed or told.failed))  # type: ignore[misc]
                assert {reason for _, reason in told.failed} == failures
                await prober.close()

    with caplog.at_level(logging.DEBUG, logger="tokenfleet.probe"):
        run(scenario)
    assert "probe.key_file" in caplog.text
    for never in (SECRET, "wrong-key", "who are you", "you said"):
        assert never not in caplog.text


def test_a_slow_probe_does_not_delay_others_f105() -> None:
    """F105: those that answer pass while others hang; at most ``concurrency`` are asked at a time."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            hung = [await stack.enter_async_context(Engine(hang=True)) for _ in range(3)]
            good = [await stack.enter_async_context(Engine()) for _ in range(5)]
            targets = {f"h{i}": target(engine, f"h{i}") for i, engine in enumerate(hung)}
            targets |= {f"g{i}": target(engine, f"g{i}") for i, engine in enumerate(good)}
            told = Told()
            prober = told.prober(ProbeSettings(deadline_s=15.0, concurrency=4))
            prober.apply(targets, list(targets))
            await prober.all_asked(0.01)
            await until(lambda: len(told.passed) == 5)
            assert sorted(told.passed) == [f"g{i}" for i in range(5)]
            assert told.failed == []
            await prober.close()

            told = Told()
            prober = told.prober(ProbeSettings(deadline_s=0.2, concurrency=2, longest_pause_s=0.5))
            prober.apply(targets, list(targets))
            await until(lambda: len(told.passed) == 5)
            await prober.all_asked(15.0)
            assert {name for name, _ in told.failed} == {"h0", "h1", "h2"}
            assert {reason for _, reason in told.failed} == {"timeout"}
            await prober.close()

    run(scenario)


def test_no_more_than_the_bound_are_asked_at_a_time() -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            hung = [await stack.enter_async_context(Engine(hang=True)) for _ in range(5)]
            told = Told()
            prober = told.prober(ProbeSettings(deadline_s=15.0, concurrency=2))
            targets = {f"h{i}": target(engine, f"h{i}") for i, engine in enumerate(hung)}
            prober.apply(targets, list(targets))
            await until(lambda: sum(len(engine.asked) for engine in hung) == 2)
            await prober.all_asked(0.2)
            assert sum(len(engine.asked) for engine in hung) == 2
            prober.apply({name: targets[name] for name in ("h3", "h4")}, [])
            await until(lambda: bool(hung[3].asked and hung[4].asked))
            assert hung[2].asked == []
            await prober.close()

    run(scenario)


def test_a_pass_ends_the_traffic_and_another_process_is_probed_anew_f105() -> None:
    """F105: one request for one pass; again after a restart; none for an endpoint that left."""

    async def scenario() -> None:
        told = Told()
        prober = told.prober()
        async with Engine(503) as engine:
            prober.apply({"e": target(engine)}, ["e"])
            await until(lambda: len(told.failed) >= 3)
            assert told.passed == []
            engine.status = 200
            await until(lambda: told.passed == ["e"])
            asked = len(engine.asked)
            prober.apply({"e": target(engine)}, [])
            await asyncio.sleep(0.2)
            assert len(engine.asked) == asked
            prober.again("e")
            prober.again("unknown")
            await until(lambda: told.passed == ["e", "e"])
            assert prober.counts["e"][PASSED] == 2
            engine.status = 503
            prober.again("e")
            await until(lambda: len(engine.asked) > asked + 1)
            prober.apply({}, [])
            assert prober.counts == {}
            failures = len(told.failed)
            await asyncio.sleep(0.2)
            assert len(told.failed) <= failures
        await prober.close()

    run(scenario)
