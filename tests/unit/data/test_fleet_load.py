"""The fleet file: what a good one gives, and how each fault of a bad one is told."""

import random

import pytest
import yaml

from data.catalog.load import load_catalog
from data.errors import FleetFileError
from data.fleet.check import check_fleet
from data.fleet.dump import dump_fleet
from data.fleet.load import load_fleet, parse_fleet
from data.fleet.reference import REFERENCE_FLEETS, reference_fleet, reference_path
from data.fleet.types import EngineSettings, Fleet, Reservation

SMALL = """\
name: small
sites:
  - {name: A, role: entry, zone: north}
  - {name: B, role: compute, zone: north}
links:
  - {a: A, b: B, rtt_s: 0.002, bandwidth_gbps: 10}
gpu_pools:
  - {site: B, gpu_type: H100, count: 4, reserved_gpus: 1}
models:
  - name: chat
    version: v1
    catalog: llama-3.1-8b
    context_limit_tokens: 32000
    engine: {max_num_seqs: 64}
configs:
  - {name: chat-h100, model: chat@v1, gpu_type: H100, tensor_parallel: 1}
classes:
  - {name: interactive, slo: {ttft_s: 1.0, tpot_s: 0.05}}
tenants:
  - name: acme
    tier: guaranteed
    residency_zones: [north]
    reservations:
      - {model: chat@v1, workload_class: interactive, tokens_per_s: 500}
placement:
  - {site: B, config: chat-h100, replicas: 3}
"""


def problems(text):
    with pytest.raises(FleetFileError) as caught:
        parse_fleet(text, "fleet.yaml")
    error = caught.value
    assert error.problems[0] is error
    return [str(problem) for problem in error.problems]


def changed(old, new):
    assert old in SMALL
    return SMALL.replace(old, new)


def test_a_good_file_gives_the_values_it_states():
    fleet = parse_fleet(SMALL, "fleet.yaml")
    assert isinstance(fleet, Fleet)
    assert fleet.site("B").role == "compute"
    assert fleet.model("chat@v1").engine == EngineSettings(max_num_seqs=64)
    assert fleet.tenant("acme").reservations == (
        Reservation("chat@v1", tokens_per_s=500.0, workload_class="interactive"),
    )
    assert fleet.link("B", "A").rtt_s == 0.002
    assert fleet.pools[0].reserved_gpus == 1


def test_f129_every_fault_is_listed_with_path_value_and_suggestion_and_no_fleet_comes_out():
    text = changed("tier: guaranteed", "tier: garanteed").replace("count: 4", "count: -4")
    assert problems(text) == [
        "fleet.yaml:8: gpu_pools[0].count: out of range (got -4); expected 0 to 1000000",
        "fleet.yaml:21: tenants[0].tier: wrong value (got 'garanteed'); expected 'guaranteed'? "
        "(one of best_effort, guaranteed, standard)",
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "zone: north}\n  - {name: B",
            "zoen: north}\n  - {name: B",
            "3: sites[0].zoen: unknown key; expected 'zone'?",
        ),
        ("name: small\n", "", "1: name: missing key; expected a name of letters"),
        ("{a: A, b: B", "{a: A, b: X", "6: links[0].b: unknown site (got 'X'); expected one of A, B"),
        (
            "gpu_type: H100, count",
            "gpu_type: H10, count",
            "8: gpu_pools[0].gpu_type: unknown GPU type (got 'H10')",
        ),
        (
            "catalog: llama-3.1-8b",
            "catalog: llama-8b",
            "12: models[0].catalog: unknown catalog model (got 'llama-8b')",
        ),
        ("model: chat@v1, gpu", "model: chat, gpu", "16: configs[0].model: unknown model (got 'chat')"),
        (
            "workload_class: inter",
            "workload_class: intr",
            "unknown class (got 'intractive'); expected 'interactive'?",
        ),
        ("zones: [north]", "zones: [south]", "22: tenants[0].residency_zones[0]: unknown zone (got 'south')"),
        ("config: chat-h100", "config: chat", "26: placement[0].config: unknown config (got 'chat')"),
        ("ttft_s: 1.0", "ttft_ms: 1000", "18: classes[0].slo.ttft_ms: unknown key; expected 'ttft_s'?"),
        ("count: 4", "count: four", "8: gpu_pools[0].count: wrong value (got 'four'); expected a whole number"),
        ("count: 4", "count: 4.0", "8: gpu_pools[0].count: wrong value (got 4.0); expected a whole number"),
        ("zone: north}\nlinks", "zone: no}\nlinks", "4: sites[1].zone: wrong value (got no)"),
        ("name: chat-h100, model", "name: chat h100, model", "16: configs[0].name: not allowed here"),
    ],
)
def test_one_fault_names_line_field_value_and_what_is_right(old, new, message):
    first = problems(changed(old, new))[0]
    assert first.startswith("fleet.yaml:")
    assert message in first


@pytest.mark.parametrize(
    ("section", "entry", "where"),
    [
        ("links:\n", "  - {name: B, role: compute, zone: north}\nlinks:\n", "sites[2].name"),
        ("gpu_pools:\n", "  - {a: B, b: A, rtt_s: 0.1, bandwidth_gbps: 1}\ngpu_pools:\n", "links[1]"),
        ("models:\n", "  - {site: B, gpu_type: H100, count: 2}\nmodels:\n", "gpu_pools[1]"),
        ("tenants:\n", "  - {name: interactive, slo: {ttft_s: 2}}\ntenants:\n", "classes[1].name"),
        (
            "configs:\n",
            "  - {name: chat, version: v1, catalog: qwen3-32b, context_limit_tokens: 9000}\nconfigs:\n",
            "models[1].version",
        ),
    ],
)
def test_a_second_entry_of_the_same_name_is_a_fault(section, entry, where):
    (message,) = problems(changed(section, entry))
    assert f"{where}: duplicate of an earlier entry" in message


def test_f132_milliseconds_in_a_field_of_seconds_are_refused_with_what_was_meant():
    (message,) = problems(changed("ttft_s: 1.0", "ttft_s: 2000"))
    assert "classes[0].slo.ttft_s: implausible value (got 2000.0)" in message
    assert "did you mean 2?" in message
    (message,) = problems(changed("ttft_s: 1.0", "ttft_s: 0.002"))
    assert "did you mean 2?" in message
    fleet = parse_fleet("allow_implausible: true\n" + changed("ttft_s: 1.0", "ttft_s: 2000"), "fleet.yaml")
    assert fleet.classes[0].slo.ttft_s == 2000
    assert parse_fleet(dump_fleet(fleet), "again.yaml") == fleet


def test_allow_implausible_must_be_a_flag():
    (message,) = problems("allow_implausible: maybe\n" + SMALL)
    assert "allow_implausible: wrong value (got 'maybe'); expected true or false" in message


def test_f130_notes_under_x_keys_are_free_and_change_nothing():
    noted = changed("name: small\n", "name: small\nx-owner: {team: platform}\n")
    assert parse_fleet(noted, "fleet.yaml") == parse_fleet(SMALL, "fleet.yaml")


@pytest.mark.parametrize("name", REFERENCE_FLEETS)
def test_f130_the_order_of_keys_and_entries_does_not_matter(name):
    document = yaml.safe_load(reference_path(name).read_text())
    rng = random.Random(7)

    def shuffled(value):
        if isinstance(value, dict):
            keys = list(value)
            rng.shuffle(keys)
            return {key: shuffled(value[key]) for key in keys}
        if isinstance(value, list):
            items = [shuffled(item) for item in value]
            rng.shuffle(items)
            return items
        return value

    fleet = reference_fleet(name)
    for _ in range(5):
        other = parse_fleet(yaml.safe_dump(shuffled(document), sort_keys=False), "shuffled.yaml")
        for section in ("sites", "links", "pools", "models", "configs", "classes", "placement"):
            assert set(getattr(other, section)) == set(getattr(fleet, section))
        assert {tenant.name for tenant in other.tenants} == {tenant.name for tenant in fleet.tenants}


def test_f134_a_setting_at_the_wrong_level_is_refused_not_ignored():
    (message,) = problems(changed("    engine: {max_num_seqs: 64}\n", "    max_num_seqs: 64\n"))
    assert "models[0].max_num_seqs: unknown key" in message


def test_f133_sections_that_may_be_absent_are_empty_then():
    text = SMALL[: SMALL.index("placement:")].replace("  - {name: A, role: entry, zone: north}\n", "")
    text = text.replace("links:\n  - {a: A, b: B, rtt_s: 0.002, bandwidth_gbps: 10}\n", "")
    fleet = parse_fleet(text, "fleet.yaml")
    assert fleet.links == ()
    assert fleet.placement == ()


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FleetFileError, match="cannot be read: No such file"):
        load_fleet(tmp_path / "none.yaml")
    with pytest.raises(FleetFileError, match="cannot be read: Is a directory"):
        load_fleet(tmp_path)
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"name: a\nsites: \xe9\n")
    with pytest.raises(FleetFileError, match=r"latin.yaml:2: not UTF-8 text"):
        load_fleet(path)
    path.write_bytes(b"\xef\xbb\xbf" + SMALL.replace("\n", "\r\n").encode())
    assert load_fleet(path) == parse_fleet(SMALL, "fleet.yaml")
    path.write_bytes(b"a: " + b"x" * 6_000_000)
    with pytest.raises(FleetFileError, match="document too large"):
        load_fleet(path)


@pytest.mark.parametrize("text", ["", "~", "[]", "text", "7", "# only a note\n"])
def test_a_document_that_is_no_mapping(text):
    (message,) = problems(text)
    assert "expected a mapping with keys" in message


def test_a_fleet_built_in_code_meets_the_same_rules():
    fleet = parse_fleet(SMALL, "fleet.yaml")
    catalog = load_catalog()
    assert check_fleet(fleet, catalog) == []
    broken = Fleet(**{name: getattr(fleet, name) for name in Fleet.__slots__} | {"placement": (), "sites": ()})
    messages = [str(problem) for problem in check_fleet(broken, catalog)]
    assert any(message.startswith("links[0].a: unknown site (got 'A')") for message in messages)
