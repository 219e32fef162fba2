"""``tokenfleet serve planner``: the planner on a schedule, with its HTTP API."""

from __future__ import annotations

import json
import logging
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from data.errors import InputError, SettingError
from data.fleet.reference import REFERENCE_FLEETS, reference_path

if TYPE_CHECKING:
    from planner.api.server import ServeSettings
    from planner.loop.loop_parts import LoopParts
    from planner.loop.ramp_turn import RampTurn
    from planner.loop.retraining import RetrainingSettings
    from planner.loop.settings import LoopSettings
    from planner.loop.sources import DemandSource
    from planner.plan_store.store import PlanStore
    from router.policies.settings import Setting

FILE = click.Path(path_type=Path)


@click.command()
@click.option("--fleet", required=True, metavar="FILE", help="Fleet file, or the name of a built-in fleet.")
@click.option("--plans", required=True, type=FILE, metavar="DIR", help="Plan store; made when missing.")
@click.option("--log", "log", type=FILE, metavar="DIR", help="See demand and Goodput in this log.")
@click.option("--demand", type=FILE, metavar="FILE", help="See demand in this demand file.")
@click.option("--prometheus", metavar="URL", help="See demand and Goodput on this Prometheus server.")
@click.option("--prometheus-query", metavar="PROMQL", help="Counters of output tokens; default: the router's.")
@click.option("--prometheus-good-query", metavar="PROMQL", help="Those of them that met all targets.")
@click.option("--every", metavar="TIME", help="Time between two steps, such as 15m; default 15m.")
@click.option("--cron", metavar="FIELDS", help='Steps by a cron expression in UTC, such as "*/15 * * * *".')
@click.option("--bin", "bin_s", type=float, default=600.0, show_default=True, help="Windows of the forecast, s.")
@click.option("--model", default="", help="Model of demand that names none.")
@click.option("--class", "workload_class", default="", help="Class of demand that names none.")
@click.option("--tenant", default="", help="Tenant of demand that names none.")
@click.option("--origin", default="", help="Entry site of demand that names none.")
@click.option(
    "--period", default="", metavar="TIME", help="Time that a plan is made for; default: --every or 30m."
)
@click.option(
    "--time-limit", "time_limit_s", type=float, default=20.0, show_default=True, help="Placement search, s."
)
@click.option("--ramp", type=FILE, metavar="FILE", help="Move traffic to a new version as this file says.")
@click.option(
    "--capacity-cache",
    type=FILE,
    metavar="FILE",
    help="Measured capacities; missing ones are measured beside the loop.",
)
@click.option(
    "--feedback",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="Where a router keeps its feedback (--feedback-state). May be repeated.",
)
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="Setting of the loop; see the docs.")
@click.option(
    "--listen", default="127.0.0.1:8480", show_default=True, metavar="HOST:PORT", help="Where the API is."
)
@click.option("--tokens", type=FILE, metavar="FILE", help="Who may read and who may operate.")
@click.option("--tls-certificate", type=FILE, metavar="FILE", help="Certificate chain of the API, PEM.")
@click.option("--tls-key", type=FILE, metavar="FILE", help="Its private key, PEM.")
@click.option("--allow-insecure", is_flag=True, help="Listen beyond this machine without TLS or tokens.")
@click.option("--webhook", metavar="URL", help="POST each new version there.")
@click.option(
    "--webhook-secret", type=FILE, metavar="FILE", help="Secret that signs the webhook, 16 bytes or more."
)
@click.option("--models", type=FILE, metavar="DIR", help="Model store that --retrain-every trains into.")
@click.option("--retrain-every", metavar="TIME", help="Retrain latency models from --log so often, such as 1d.")
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Of stderr."
)
@click.option("--json", "as_json", is_flag=True, help="Tell the address as one JSON line on stdout.")
def planner(as_json: bool, log_format: str, **given: Any) -> None:
    """Plan on a schedule, publish plans, watch them, and serve the HTTP API."""
    from planner.api.server import PlannerService

    parts, settings = _parts(given), _serve_settings(given)
    if log_format == "json":
        from router.observe.json_log import log_to

        log_to()
    else:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")

    _try_solvers()

    def started(address: str) -> None:
        if as_json:
            click.echo(json.dumps({"address": address}))
        else:
            click.echo(f"listening on {address}", err=True)

    PlannerService(parts, settings, started).run()


def _try_solvers() -> None:
    """Say before the first plan which solvers do not run: without them plans are greedy."""
    from solver.child import ChildSolver
    from solver.self_test import self_test

    log = logging.getLogger("tokenfleet.planner")
    with ChildSolver() as child:
        for one in self_test(child):
            if one.ok:
                log.info("%s runs (%s)", one.backend, one.version)
            else:
                log.error("%s (%s) does not run: %s", one.backend, one.version, one.detail)


def _parts(given: dict[str, Any]) -> LoopParts:
    from planner.arm import parse_settings
    from planner.loop.loop_parts import LoopParts
    from planner.loop.measuring import Measuring
    from planner.loop.schedule import Schedule, parse_duration
    from planner.plan_store.store import LEASE_S, PlanStore
    from planner.settings import PlannerSettings
    from solver.settings import PlacementSettings

    if given["every"] and given["cron"]:
        raise click.UsageError("give --every or --cron, not both")
    every_s = None if given["cron"] else parse_duration(given["every"] or "15m", "--every")
    period_s = parse_duration(given["period"], "--period") if given["period"] else every_s or 1800.0
    values = parse_settings(given["pairs"])
    loop = _loop_settings(values)
    sources = _sources(given)
    planner = PlannerSettings(placement=PlacementSettings(time_limit_s=given["time_limit_s"]), period_s=period_s)
    name = given["fleet"]
    path = reference_path(name) if name in REFERENCE_FLEETS and not Path(name).exists() else Path(name)
    # A leader does not renew during a step, so its lease outlasts one.
    store = PlanStore(given["plans"], lease_s=max(LEASE_S, 2.0 * loop.step_deadline_s))
    schedule, named = Schedule(every_s, given["cron"]), frozenset(values)
    return LoopParts(
        path,
        store,
        sources,
        schedule,
        planner,
        loop,
        given["capacity_cache"],
        named,
        feedback=tuple(given["feedback"]),
        ramp=_ramp(given, path, store, loop),
        measuring=None if given["capacity_cache"] is None else Measuring(given["capacity_cache"]),
    )


def _ramp(given: dict[str, Any], fleet: Path, store: PlanStore, loop: LoopSettings) -> RampTurn | None:
    from data.fleet.load import load_fleet
    from planner.loop.ramp import load_ramp
    from planner.loop.ramp_turn import RampTurn

    if given["ramp"] is None:
        return None
    if given["log"] is None:
        raise click.UsageError("--ramp needs --log: both versions are compared in it")
    return RampTurn(load_ramp(given["ramp"], load_fleet(fleet)), given["log"], store.folder, loop.settle_s)


def _sources(given: dict[str, Any]) -> tuple[DemandSource, ...]:
    from planner.demand_history import Naming
    from planner.loop.log_source import LogSource
    from planner.loop.prometheus_source import GOOD, TOKENS, PrometheusSource
    from planner.loop.sources import FileSource

    naming = Naming(**{name: given[name] for name in ("model", "workload_class", "tenant", "origin")})
    sources: list[DemandSource] = []
    if given["log"] is not None:
        sources.append(LogSource(given["log"], naming, given["bin_s"]))
    if given["prometheus"]:
        query, good = given["prometheus_query"] or TOKENS, given["prometheus_good_query"] or GOOD
        sources.append(PrometheusSource(given["prometheus"], query, good, naming=naming, step_s=given["bin_s"]))
    if given["demand"] is not None:
        sources.append(FileSource(given["demand"]))
    if not sources:
        raise click.UsageError("give --log, --demand or --prometheus")
    return tuple(sources)


def _loop_settings(values: dict[str, Setting]) -> LoopSettings:
    """Settings of the loop by name.

    Raises:
        SettingError: One is unknown, not a number, or out of its range.
    """
    from planner.loop.settings import LoopSettings

    known = {one.name: one.type for one in fields(LoopSettings)}
    for name, value in values.items():
        if name not in known:
            expected = "one of " + ", ".join(sorted(known))
            raise SettingError("unknown setting", field=name, value=value, expected=expected)
        wanted = {"int": int, "float": int | float, "str": str}[str(known[name])]
        if isinstance(value, bool) or not isinstance(value, wanted):
            raise SettingError("wrong kind of value", field=name, value=value, expected=str(known[name]))
    return replace(LoopSettings(), **values)  # type: ignore[arg-type]


def _serve_settings(given: dict[str, Any]) -> ServeSettings:
    from planner.api.server import ServeSettings
    from planner.outlets.webhook import WebhookSettings
    from router.serving.server_settings import ListenSettings, Tls

    certificate, key = given["tls_certificate"], given["tls_key"]
    if (certificate is None) != (key is None):
        raise SettingError("certificate and key belong together", field="--tls-certificate, --tls-key")
    tls = None if certificate is None else Tls(certificate, key)
    webhook = None
    if given["webhook"]:
        secret = b""
        if given["webhook_secret"] is not None:
            try:
                secret = given["webhook_secret"].read_bytes().strip()
            except OSError as error:
                source = str(given["webhook_secret"])
                raise InputError(f"cannot be read: {error.strerror}", source=source) from error
        webhook = WebhookSettings(given["webhook"], secret)
    listen = ListenSettings(given["listen"], tls, given["allow_insecure"])
    return ServeSettings(listen, given["tokens"], webhook=webhook, retraining=_retraining(given))


def _retraining(given: dict[str, Any]) -> RetrainingSettings | None:
    from planner.loop.retraining import RetrainingSettings
    from planner.loop.schedule import Schedule, parse_duration

    if not given["retrain_every"]:
        return None
    if given["log"] is None or given["models"] is None:
        raise click.UsageError("--retrain-every needs --log and --models")
    schedule = Schedule(parse_duration(given["retrain_every"], "--retrain-every"))
    return RetrainingSettings(given["log"], given["models"], schedule)
