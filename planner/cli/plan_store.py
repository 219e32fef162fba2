"""``tokenfleet plan history`` and ``tokenfleet plan kubernetes``: a plan store and its plans from the shell."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click


@click.command()
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Versions at most.")
@click.option("--json", "as_json", is_flag=True, help="Machine output on stdout.")
def history(store: Path, limit: int, as_json: bool) -> None:
    """Show the versions of a plan store, newest first."""
    from rich.console import Console
    from rich.table import Table

    from planner.cli.plan_place import store_at
    from planner.plan_store.entry import entry_to_dict

    entries = store_at(store).history(most=limit)
    if as_json:
        click.echo(json.dumps([entry_to_dict(entry) for entry in entries], indent=2, ensure_ascii=False))
        return
    table = Table("version", "when (UTC)", "what", "plan", "planner", "why")
    for entry in entries:
        when = datetime.fromtimestamp(entry.published_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
        kind = entry.kind.value.replace("_", " ") + (f" to {entry.restores}" if entry.restores else "")
        table.add_row(str(entry.version), when, kind, entry.plan_id, f"epoch {entry.epoch}", entry.reason)
    Console(soft_wrap=True).print(table)


@click.command()
@click.argument("place", metavar="FILE|DIR[@VERSION]")
@click.option("--site", required=True, metavar="NAME", help="Site whose objects are wanted.")
@click.option("--namespace", default="default", show_default=True, help="Namespace of all objects.")
@click.option(
    "--kind", default="Deployment", show_default=True, help="Deployment, StatefulSet or LeaderWorkerSet."
)
@click.option(
    "--name", default="{config}", show_default=True, help="Names: {site}, {config}, {model} are filled in."
)
@click.option("--json", "as_json", is_flag=True, help="A list of objects in JSON instead of YAML.")
def kubernetes(place: str, site: str, namespace: str, kind: str, name: str, as_json: bool) -> None:
    """Show a plan as Kubernetes patches, for `kubectl apply --server-side -f -`."""
    from planner.cli.plan_place import plan_at
    from planner.outlets.kubernetes import KubernetesSettings, kubernetes_documents, kubernetes_yaml

    plan, settings = plan_at(place), KubernetesSettings(namespace=namespace, kind=kind, name=name)
    if as_json:
        click.echo(json.dumps(kubernetes_documents(plan, site, settings), indent=2, ensure_ascii=False))
    else:
        click.echo(kubernetes_yaml(plan, site, settings), nl=False)
