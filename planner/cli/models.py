"""``tokenfleet models``: list, show, compare, promote and roll back trained latency models."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from planner.cli.models_drift import drift
from planner.cli.store_folder import store_folder

if TYPE_CHECKING:
    from models.store import ModelStore

store_option = click.option("--store", "folder", required=True, metavar="DIR", help="Model store.")
json_option = click.option("--json", "as_json", is_flag=True, help="Machine output on stdout.")


@click.group()
def models() -> None:
    """List, show, compare, promote and roll back trained latency models."""


models.add_command(drift)


@models.command("list")
@store_option
@json_option
def list_models(folder: str, as_json: bool) -> None:
    """All versions, oldest first, and which one serves."""
    from planner.cli.model_tables import print_comparison, summary

    store = _store(folder)
    cards = [store.card(version) for version in store.versions()]
    if as_json:
        values = {"serving": store.current(), "versions": [summary(card) for card in cards]}
        click.echo(json.dumps(values, indent=2))
        return
    if not cards:
        click.echo(f"{folder}: no models")
        return
    print_comparison(cards, store.current())


@models.command()
@click.argument("version", required=False)
@store_option
@json_option
def show(version: str | None, folder: str, as_json: bool) -> None:
    """Card, errors and coverage of VERSION (the serving one by default)."""
    from planner.cli.model_tables import print_report

    store = _store(folder)
    card = store.card(version or _serving(store))
    if as_json:
        click.echo(card.to_json(), nl=False)
        return
    click.echo(f"{card.version}, made {card.created_at}, GPU types {', '.join(card.gpu_types)}")
    print_report(card)


@models.command()
@click.argument("versions", nargs=-1, required=True)
@store_option
@json_option
def compare(versions: tuple[str, ...], folder: str, as_json: bool) -> None:
    """VERSIONS side by side, each by the report on its own newest window."""
    from planner.cli.model_tables import print_comparison, print_groups, summary

    store = _store(folder)
    cards = [store.card(version) for version in versions]
    if as_json:
        values: list[dict[str, Any]] = [
            summary(card) | {"report": card.report, "checks": card.checks, "importance": card.importance}
            for card in cards
        ]
        click.echo(json.dumps({"serving": store.current(), "versions": values}, indent=2))
        return
    print_comparison(cards, store.current())
    print_groups(cards)


@models.command()
@click.argument("version")
@store_option
@json_option
def promote(version: str, folder: str, as_json: bool) -> None:
    """Make VERSION serve. It is loaded and verified first."""
    store = _store(folder)
    store.promote(version)
    _say(store, as_json)


@models.command()
@store_option
@json_option
def rollback(folder: str, as_json: bool) -> None:
    """Make the version that served before serve again."""
    store = _store(folder)
    store.rollback()
    _say(store, as_json)


def _store(folder: str) -> ModelStore:
    from models.store import ModelStore

    return ModelStore(store_folder(folder))


def _serving(store: ModelStore) -> str:
    from data.errors import ModelError

    current = store.current()
    if current is None:
        raise ModelError(f"{store.root}: no model has been promoted", reason="missing")
    return current


def _say(store: ModelStore, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"serving": store.current(), "history": store.history()}))
    else:
        click.echo(f"{store.current()} serves")
