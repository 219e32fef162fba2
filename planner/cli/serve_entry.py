"""``tokenfleet serve entry``: the upper of two levels, which chooses the site and hands on to its router."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import click

from data.errors import InputError, SettingError
from data.fleet.reference import REFERENCE_FLEETS, reference_path
from planner.arm import parse_settings
from planner.cli.router_options import TOKEN_VARIABLE
from router.serving.server_settings import ListenSettings, Tls, is_loopback, split_address

FILE = click.Path(path_type=Path)


@click.command()
@click.option("--fleet", required=True, metavar="FILE", help="Fleet file, or the name of a built-in fleet.")
@click.option(
    "--site",
    "routers",
    multiple=True,
    required=True,
    metavar="NAME=HOST:PORT",
    help="A site and where its router listens. Once for each site.",
)
@click.option(
    "--listen", default="127.0.0.1:50050", show_default=True, metavar="ADDRESS", help="HOST:PORT or unix:PATH."
)
@click.option("--plan", type=FILE, metavar="FILE", help="Plan whose traffic shares are followed.")
@click.option("--clients", type=FILE, metavar="FILE", help="Who may call, and for which tenant.")
@click.option("--metrics-listen", default="", metavar="HOST:PORT", help="Serve Prometheus metrics there.")
@click.option("--sites", default="fleetmind", show_default=True, metavar="NAME", help="Rule of site choice.")
@click.option("--sites-set", "pairs", multiple=True, metavar="KEY=VALUE", help="Setting of it. May be repeated.")
@click.option("--settings", type=FILE, metavar="FILE", help="Limits and times; see docs/sites-deployment.md.")
@click.option("--tls-certificate", type=FILE, metavar="FILE", help="Certificate chain of the entry, PEM.")
@click.option("--tls-key", type=FILE, metavar="FILE", help="Its private key, PEM.")
@click.option("--client-ca", type=FILE, metavar="FILE", help="Callers must show a certificate of this authority.")
@click.option("--allow-insecure", is_flag=True, help="Listen beyond this machine without TLS or known callers.")
@click.option(
    "--site-token-file",
    type=FILE,
    metavar="FILE",
    help=f"Bearer token for the sites' routers [${TOKEN_VARIABLE}].",
)
@click.option("--site-ca", type=FILE, metavar="FILE", help="Certificates of the sites' authority; turns TLS on.")
@click.option("--site-cert", type=FILE, metavar="FILE", help="Own certificate for the sites, for mutual TLS.")
@click.option("--site-key", type=FILE, metavar="FILE", help="Its private key.")
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Of stderr."
)
@click.option("--json", "as_json", is_flag=True, help="Tell the addresses as one JSON line on stdout.")
def entry(as_json: bool, log_format: str, **given: Any) -> None:
    """Choose the site of each request and hand it to that site's router: two levels over gRPC."""
    import uvloop

    from router.entry.entry_service import EntryService
    from router.observe.json_log import log_to

    settings = _settings(given)
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
        service = EntryService(settings, started)
        service.follow_signals()
        await service.run()

    uvloop.run(main())


def _settings(given: dict[str, Any]) -> Any:
    from router.client.settings import Identity
    from router.entry.entry_service_settings import EntryKnobs, EntryServiceSettings
    from router.serving.service_settings import read_settings

    name = given["fleet"]
    path = reference_path(name) if not Path(name).exists() and name in REFERENCE_FLEETS else Path(name)
    certificate, key = given["tls_certificate"], given["tls_key"]
    if (certificate is None) != (key is None):
        raise SettingError("certificate and key belong together", field="--tls-certificate, --tls-key")
    if certificate is None and given["client_ca"] is not None:
        raise SettingError("needs TLS", field="--client-ca", expected="--tls-certificate and --tls-key too")
    if (given["site_cert"] is None) != (given["site_key"] is None):
        raise SettingError("certificate and key belong together", field="--site-cert, --site-key")
    if given["site_ca"] is None and given["site_cert"] is not None:
        raise SettingError("needs TLS", field="--site-cert", expected="--site-ca too")
    tls = None if certificate is None else Tls(certificate, key, given["client_ca"])
    routers = _routers(given["routers"])
    _check_lines(routers, given["site_ca"] is not None or given["allow_insecure"])
    return EntryServiceSettings(
        fleet=path,
        routers=routers,
        identity=Identity(
            _token(given["site_token_file"]), given["site_ca"], given["site_cert"], given["site_key"]
        ),
        plan=given["plan"],
        clients=given["clients"],
        listen=ListenSettings(given["listen"], tls, given["allow_insecure"]),
        metrics_listen=given["metrics_listen"],
        sites=given["sites"],
        sites_settings=parse_settings(given["pairs"]),
        knobs=EntryKnobs() if given["settings"] is None else read_settings(given["settings"], EntryKnobs)[0],
    )


def _routers(pairs: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        site, sign, address = pair.partition("=")
        if not sign or not site or not address:
            raise SettingError("not a site and an address", field="--site", value=pair, expected="NAME=HOST:PORT")
        if site in found:
            raise SettingError("the site stands twice", field="--site", value=pair, expected="each site once")
        found[site] = address
    return found


def _check_lines(routers: dict[str, str], protected: bool) -> None:
    """Refuse to send requests and credentials beyond this machine in plain text."""
    for site, address in routers.items():
        host, _ = split_address(address, "--site")
        if not protected and not is_loopback(host):
            raise SettingError(
                f"would reach site {site} beyond this machine without TLS",
                field="--site",
                value=address,
                expected="--site-ca, or --allow-insecure",
            )


def _token(path: Path | None) -> str:
    if path is None:
        return os.environ.get(TOKEN_VARIABLE, "")
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from error
