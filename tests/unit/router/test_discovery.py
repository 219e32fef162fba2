"""Lists of engines: read strictly, compared by id, turned into rows and scrape targets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from data.catalog.load import load_catalog
from data.errors import FleetFileError
from data.fleet.dump import dump_fleet
from data.fleet.load import parse_fleet
from data.fleet.reference import reference_fleet
from data.fleet.types import Endpoint, Fleet
from router.feeds.discovery import (
    EndpointDiff,
    diff,
    live_endpoints,
    load_endpoints,
    parse_endpoints,
    scrape_target,
)
from router.feeds.scrape import ScrapeTarget
from router.serving.reload import WatchedFile

CATALOG = load_catalog()
FLEET = reference_fleet("one-pool")
SITE, CONFIG = FLEET.placement[0].site, FLEET.placement[0].config
ENTRY = {"id": "e1", "site": SITE, "config": CONFIG, "address": "http://10.0.0.1:8000"}


def text_of(*entries: dict[str, object]) -> str:
    return json.dumps({"endpoints": list(entries)}, indent=1)


def parse(text: str) -> tuple[Endpoint, ...]:
    return parse_endpoints(text, "endpoints.json", FLEET, CATALOG)


def faults(text: str) -> list[str]:
    with pytest.raises(FleetFileError) as raised:
        parse(text)
    return [str(problem) for problem in raised.value.problems]


def test_json_yaml_and_a_bare_list_say_the_same() -> None:
    (one,) = parse(text_of(ENTRY))
    assert one == Endpoint("e1", SITE, CONFIG, "http://10.0.0.1:8000")
    assert parse(json.dumps([ENTRY])) == (one,)
    assert parse(
        f"endpoints:\n  - {{id: e1, site: {SITE}, config: {CONFIG}, address: http://10.0.0.1:8000}}\n"
    ) == (one,)
    assert parse("[]") == ()


def test_every_fault_is_told_with_its_line() -> None:
    """F003, F129, F130: addresses, references and keys are checked when the file is read."""
    wrong = {**ENTRY, "address": "10.0.0.1", "engin": "vllm", "site": "nowhere", "engine": "vlm"}
    found = faults(text_of(wrong))
    assert len(found) == 4
    assert any("endpoints.json:7: endpoints[0].address" in fault and "host:port" in fault for fault in found)
    assert any("'engine'?" in fault for fault in found)
    assert any("unknown site" in fault for fault in found)
    assert any("'vllm'?" in fault for fault in found)


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ([ENTRY, {**ENTRY, "address": "http://10.0.0.2:8000"}], "duplicate"),
        ([ENTRY, {**ENTRY, "id": "e2"}], "the address of endpoint e1 too"),
        ([{**ENTRY, "kv_replay": "tcp://10.0.0.1:5558"}], "replay without kv_events"),
        ([{**ENTRY, "kv_events": "10.0.0.1:5557"}], "tcp://host:port"),
        ([{**ENTRY, "metrics_path": "metrics"}], "starts with /"),
        ([{**ENTRY, "address": "http://10.0.0.1:66000"}], "port 1 to 65535"),
    ],
)
def test_lists_that_do_not_fit_together_are_refused(entries: list[dict[str, object]], told: str) -> None:
    assert any(told in fault for fault in faults(text_of(*entries)))


@pytest.mark.parametrize("text", ["", "endpoints: 3\n", "pools: []\n", "{", "just text"])
def test_what_is_no_list_of_endpoints_is_refused(text: str) -> None:
    assert faults(text)


def test_an_entry_site_holds_no_engines() -> None:
    fleet = reference_fleet("four-sites")
    entry = next(site.name for site in fleet.sites if site.role == "entry")
    with pytest.raises(FleetFileError, match="an entry site holds no engines"):
        parse_endpoints(
            text_of({**ENTRY, "site": entry, "config": fleet.configs[0].name}), "e.json", fleet, CATALOG
        )


def test_the_fleet_file_may_hold_the_list_itself_and_keeps_it() -> None:
    endpoint = Endpoint(
        "e1", SITE, CONFIG, "https://[fd00::1]:8443", "sglang", None, "/m", "tcp://10.0.0.1:5557", "ipc:///run/kv"
    )
    fleet = replace(FLEET, endpoints=(endpoint,))
    again = parse_fleet(dump_fleet(fleet), "fleet.yaml")
    assert again == fleet
    broken = dump_fleet(fleet).replace("https://[fd00::1]:8443", "http://[fd00::1]")
    with pytest.raises(FleetFileError, match="host:port"):
        parse_fleet(broken, "fleet.yaml")


def test_lists_are_compared_by_id_whatever_their_order() -> None:
    a, b, c = (Endpoint(name, SITE, CONFIG, f"http://h:{port}") for name, port in (("a", 1), ("b", 2), ("c", 3)))
    moved = replace(b, address="http://h:9")
    assert diff((a, b), (moved, c)) == EndpointDiff((c,), ("a",), (moved,))
    assert not diff((a, b), (b, a))
    assert diff((), (a,)) == EndpointDiff(added=(a,))


def test_rows_know_what_runs_where_and_a_move_is_another_incarnation() -> None:
    """F021, F025: the same id at another address starts empty; other metrics settings do not."""
    endpoint = Endpoint("e1", SITE, CONFIG, "http://h:1")
    (live,) = live_endpoints((endpoint,), FLEET, CATALOG)
    assert live.spec.endpoint_id == "e1"
    assert (live.spec.site, live.spec.config, live.address) == (SITE, CONFIG, "http://h:1")
    assert live.spec.kv_capacity_tokens > 0
    assert not live.kv_events

    def incarnation(**changes: str) -> str:
        return live_endpoints((replace(endpoint, **changes),), FLEET, CATALOG)[0].incarnation

    assert incarnation(address="http://h:2") != live.incarnation
    assert incarnation(engine="sglang") != live.incarnation
    assert incarnation(metrics_path="/m", kv_events="tcp://h:2") == live.incarnation


def test_metrics_may_stand_elsewhere() -> None:
    endpoint = Endpoint("e1", SITE, CONFIG, "http://h:1", "triton")
    assert scrape_target(endpoint) == ScrapeTarget("e1", "http://h:1", "triton", "")
    elsewhere = replace(endpoint, metrics_address="http://h:8002", metrics_path="/m")
    assert scrape_target(elsewhere) == ScrapeTarget("e1", "http://h:8002", "triton", "/m")


def test_a_bad_or_absent_file_leaves_the_old_list_and_says_so(tmp_path: Path) -> None:
    """F129, F133: that a file disappears is not "no engines"."""
    path = tmp_path / "endpoints.json"
    path.write_text(text_of(ENTRY))
    served: list[tuple[Endpoint, ...]] = []
    watched = WatchedFile(
        "endpoints",
        path,
        lambda p: load_endpoints(p, FLEET, CATALOG),
        served.append,
        lambda endpoints: f"{len(endpoints)} endpoints",
        "none",
    )
    assert watched.take(watched.read())
    replace_with(path, text_of({**ENTRY, "address": "h"}))
    assert watched.changed()
    assert not watched.take(watched.read())
    assert "host:port" in watched.status.errors[0]
    path.unlink()
    assert watched.changed()
    assert not watched.take(watched.read())
    assert "cannot be read" in watched.status.errors[0]
    assert watched.status.active == "1 endpoints"
    replace_with(path, text_of(ENTRY, {**ENTRY, "id": "e2", "address": "http://10.0.0.2:8000"}))
    assert watched.changed()
    assert watched.take(watched.read())
    assert [len(endpoints) for endpoints in served] == [1, 2]


def replace_with(path: Path, text: str) -> None:
    aside = path.with_suffix(".part")
    aside.write_text(text)
    aside.replace(path)


def test_the_reference_fleets_name_no_engines() -> None:
    assert all(reference_fleet(name).endpoints == () for name in ("one-pool", "mixed-pool", "four-sites"))
    assert isinstance(FLEET, Fleet)
