"""``tokenfleet serve``: the routing service over gRPC, the entry router and the planner."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from data.errors import SettingError
from data.fleet.reference import REFERENCE_FLEETS, reference_path
from planner.arm import parse_settings
from planner.cli.serve_entry import entry
from planner.cli.serve_planner import planner
from router.serving.server_settings import ListenSettings, Tls
from router.serving.service_settings import Given, Knobs, ServiceSettings, read_knobs

FILE = click.Path(path_type=Path)


@click.group()
def serve() -> None:
    """Run a service until it is told to stop (SIGTERM drains, SIGHUP reads its files again)."""


@serve.command()
@click.option("--fleet", required=True, metavar="FILE", help="Fleet file, or the name of a built-in fleet.")
@click.option(
    "--listen", default="127.0.0.1:50051", show_default=True, metavar="ADDRESS", help="HOST:PORT or unix:PATH."
)
@click.option("--endpoints", type=FILE, metavar="FILE", help="List of engines, in place of the fleet file's.")
@click.option("--plan", type=FILE, metavar="FILE", help="Plan to follow: replicas beyond it drain.")
@click.option("--models", type=FILE, metavar="DIR", help="Model store; without it the closed-form prior predicts.")
@click.option("--clients", type=FILE, metavar="FILE", help="Who may call, and for which tenant.")
@click.option("--log", "log", type=FILE, metavar="DIR", help="Write decisions and outcomes to this folder.")
@click.option("--metrics-listen", default="", metavar="HOST:PORT", help="Serve Prometheus metrics there.")
@click.option("--policy", default="tokenpilot", show_default=True, metavar="NAME", help="Routing policy.")
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="Setting of the policy. May be repeated.")
@click.option(
    "--flow", default="slomax", show_default=True, metavar="NAME", help="Flow control; none = decide at once."
)
@click.option(
    "--flow-set", "flow_pairs", multiple=True, metavar="KEY=VALUE", help="Setting of it. May be repeated."
)
@click.option(
    "--feedback/--no-feedback",
    default=True,
    show_default=True,
    help="Correct the flow control by what became of the requests.",
)
@click.option(
    "--feedback-state", type=FILE, metavar="FILE", help="Keep the feedback there for the next start and a planner."
)
@click.option(
    "--sites",
    default="fleetmind",
    show_default=True,
    metavar="NAME",
    help="Rule that chooses the site where the fleet has several; none = the policy is shown all.",
)
@click.option(
    "--sites-set", "sites_pairs", multiple=True, metavar="KEY=VALUE", help="Setting of it. May be repeated."
)
@click.option(
    "--only-site", default="", metavar="NAME", help="Serve this site's engines alone, behind `serve entry`."
)
@click.option(
    "--probe/--no-probe",
    default=False,
    show_default=True,
    help="Send a listed engine requests only once it has answered a completion of one token.",
)
@click.option("--settings", type=FILE, metavar="FILE", help="Limits, leases and filters; see docs/router.md.")
@click.option(
    "--scope-secret", type=FILE, metavar="FILE", help="Secret that parts prefixes of tenants, 16 to 64 bytes."
)
@click.option("--public-prefixes", type=FILE, metavar="FILE", help="Prompt beginnings that all tenants share.")
@click.option(
    "--index-snapshot", type=FILE, metavar="FILE", help="Keep the prefix index there for the next start."
)
@click.option("--tls-certificate", type=FILE, metavar="FILE", help="Certificate chain of the server, PEM.")
@click.option("--tls-key", type=FILE, metavar="FILE", help="Its private key, PEM.")
@click.option("--client-ca", type=FILE, metavar="FILE", help="Callers must show a certificate of this authority.")
@click.option("--allow-insecure", is_flag=True, help="Listen beyond this machine without TLS or known callers.")
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Of stderr."
)
@click.option("--json", "as_json", is_flag=True, help="Tell the addresses as one JSON line on stdout.")
@click.pass_context
def router(context: click.Context, /, as_json: bool, log_format: str, **given: Any) -> None:
    """Serve tokenfleet.router.v1.Router: where should each request go?"""
    import uvloop

    from router.observe.json_log import log_to
    from router.serving.service import RouterService

    flags = frozenset(name for name in given if context.get_parameter_source(name) is ParameterSource.COMMANDLINE)
    settings = _settings(given, flags)
    if log_format == "json":
        log_to()
    else:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")

    def started(address: str, page: str | None) -> None:
        if as_json:
            click.echo(json.dumps({"address": address, "metrics": page}))
        else:
            click.echo(f"listening on {address}" + (f", metrics on {page}" if page else ""), err=True)

    async def main() -> None:
        service = RouterService(settings, started)
        service.follow_signals()
        await service.run()

    uvloop.run(main())


serve.add_command(planner)
serve.add_command(entry)

NESTED = {
    "listen": "listen.address",
    "tls_certificate": "listen.tls.certificate",
    "tls_key": "listen.tls.key",
    "client_ca": "listen.tls.client_ca",
    "allow_insecure": "listen.allow_insecure",
}
"""Flags whose setting stands deeper in ``ServiceSettings``."""
PLAIN = (
    "endpoints",
    "plan",
    "models",
    "clients",
    "log",
    "scope_secret",
    "public_prefixes",
    "index_snapshot",
    "metrics_listen",
    "policy",
    "flow",
    "sites",
    "only_site",
    "probe",
    "feedback",
    "feedback_state",
)


def _settings(given: dict[str, Any], flags: frozenset[str]) -> ServiceSettings:
    name = given["fleet"]
    path = Path(name)
    if not path.exists() and name in REFERENCE_FLEETS:
        path = reference_path(name)
    certificate, key = given["tls_certificate"], given["tls_key"]
    if (certificate is None) != (key is None):
        raise SettingError("certificate and key belong together", field="--tls-certificate, --tls-key")
    if certificate is None and given["client_ca"] is not None:
        raise SettingError("needs TLS", field="--client-ca", expected="--tls-certificate and --tls-key too")
    tls = None if certificate is None else Tls(certificate, key, given["client_ca"])
    knobs, keys = (Knobs(), frozenset()) if given["settings"] is None else read_knobs(given["settings"])
    return ServiceSettings(
        fleet=path,
        listen=ListenSettings(given["listen"], tls, given["allow_insecure"]),
        policy_settings=parse_settings(given["pairs"]),
        flow_settings=parse_settings(given["flow_pairs"]),
        sites_settings=parse_settings(given["sites_pairs"]),
        knobs=knobs,
        given=Given(frozenset(NESTED.get(flag, flag) for flag in flags), given["settings"], keys),
        **{field: given[field] for field in PLAIN},
    )
