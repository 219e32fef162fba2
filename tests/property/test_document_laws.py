"""Laws of the fleet file and the plan document: round trips, no crash on any input, schema and reader agree."""

import copy
import json
import math
from dataclasses import replace

import jsonschema
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from data.errors import DocumentError
from data.fleet.dump import dump_fleet
from data.fleet.load import parse_fleet
from data.fleet.reference import REFERENCE_FLEETS, reference_fleet, reference_path
from data.fleet.rules import FLEET_BOOK
from data.fleet.schema import fleet_schema
from data.fleet.types import Fleet, Placed, Tenant, WorkloadClass
from data.plan import (
    Move,
    PlanDocument,
    PlannedReplicas,
    PlanStatus,
    PoolSplit,
    ShadowPrice,
    TrafficShare,
    UnmetDemand,
)
from data.plan_io import plan_from_json, plan_schema, plan_to_json
from data.plan_rules import PLAN_BOOK
from data.strict.decode import Decoder
from data.types import Slo

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:/+-]{0,12}", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
SOME_TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
NUMBERS = st.floats(0, 1e9)
FLEETS = {name: reference_fleet(name) for name in REFERENCE_FLEETS}
DOCUMENTS = {name: yaml.safe_load(reference_path(name).read_text()) for name in REFERENCE_FLEETS}


def optional(strategy):
    return st.none() | strategy


@st.composite
def fleets(draw):
    """Sound fleets: a reference fleet with other names, classes, tenants and placement."""
    fleet = FLEETS[draw(st.sampled_from(REFERENCE_FLEETS))]
    slos = st.builds(Slo, st.floats(0.005, 600), optional(st.floats(0.0005, 5)), optional(st.floats(600, 1e6)))
    classes = draw(
        st.lists(
            st.builds(
                WorkloadClass, NAMES, slos, st.floats(1e-3, 1e4), st.integers(1, 10**6), st.integers(1, 10**6)
            ),
            min_size=1,
            unique_by=lambda kind: kind.name,
            max_size=4,
        )
    )
    tenants = draw(
        st.lists(
            st.builds(
                Tenant,
                NAMES,
                st.sampled_from(["guaranteed", "standard", "best_effort"]),
                st.floats(1e-3, 1e4),
                tokens_per_s_budget=optional(st.floats(1, 1e9)),
            ),
            unique_by=lambda tenant: tenant.name,
            max_size=4,
        )
    )
    placement = tuple(
        Placed(p.site, p.config, draw(st.integers(0, p.replicas)), draw(st.integers(0, 2)))
        for p in fleet.placement
    )
    return replace(fleet, name=draw(NAMES), classes=tuple(classes), tenants=tuple(tenants), placement=placement)


@given(fleets())
@settings(max_examples=60, deadline=None)
def test_a_sound_fleet_survives_dump_and_parse(fleet):
    assert parse_fleet(dump_fleet(fleet), "dumped.yaml") == fleet


@given(st.lists(NAMES, min_size=4, max_size=4, unique=True))
@settings(max_examples=100, deadline=None)
def test_any_legal_name_survives_the_dump(names):
    """Names such as ``no``, ``1e3``, ``010`` and ``1:30`` mean other things in YAML unless they are quoted."""
    fleet = FLEETS["one-pool"]
    site, zone, kind, tenant = names
    renamed = replace(
        fleet,
        sites=(replace(fleet.sites[0], name=site, zone=zone),),
        pools=(replace(fleet.pools[0], site=site),),
        placement=(replace(fleet.placement[0], site=site),),
        classes=(replace(fleet.classes[0], name=kind),),
        tenants=(Tenant(tenant),),
    )
    assert parse_fleet(dump_fleet(renamed), "dumped.yaml") == renamed


@st.composite
def moves(draw):
    """A move with or without moments, worth and limits."""
    change = draw(st.integers(-9, 9).filter(bool))
    begin_s = draw(st.lists(st.floats(0, 1e6), min_size=abs(change), max_size=abs(change)))
    return Move(
        draw(SOME_TEXT),
        draw(SOME_TEXT),
        change,
        draw(st.floats(-1e9, 1e9)),
        draw(TEXTS),
        draw(NUMBERS),
        draw(optional(st.floats(-1e9, 1e9))),
        draw(optional(st.floats(-1e9, 1e9))),
        tuple(draw(st.lists(TEXTS, max_size=2))),
        tuple(sorted(begin_s)) if draw(st.booleans()) else (),
        draw(NUMBERS),
    )


MOVES = moves()
PLANS = st.builds(
    PlanDocument,
    plan_id=NAMES,
    parent_id=optional(NAMES),
    made_at=st.datetimes(timezones=st.none()).map(lambda t: t.replace(microsecond=0).isoformat() + "Z"),
    valid_from=st.just("2026-01-01T00:00:00Z"),
    valid_until=st.just("2026-01-01T01:00:00.25Z"),
    fleet=TEXTS,
    input_digests=st.dictionaries(TEXTS, TEXTS, max_size=3),
    status=st.sampled_from(PlanStatus),
    objective=st.floats(-1e12, 1e12),
    goodput_tokens_per_s=NUMBERS,
    bound=st.floats(-1e12, 1e12),
    bound_name=TEXTS,
    replicas=st.lists(
        st.builds(
            PlannedReplicas,
            SOME_TEXT,
            SOME_TEXT,
            SOME_TEXT,
            SOME_TEXT,
            st.integers(1, 64),
            st.integers(0, 10**6),
            st.integers(0, 9),
        ),
        max_size=4,
        unique_by=lambda row: (row.site, row.config),
    ).map(tuple),
    shares=st.lists(
        st.builds(TrafficShare, SOME_TEXT, TEXTS, TEXTS, TEXTS, SOME_TEXT, st.floats(0, 0.2)), max_size=4
    ).map(tuple),
    splits=st.lists(
        st.builds(
            PoolSplit,
            SOME_TEXT,
            SOME_TEXT,
            TEXTS,
            TEXTS,
            st.integers(0, 99),
            NUMBERS,
            st.dictionaries(TEXTS, NUMBERS, max_size=3),
        ),
        max_size=3,
    ).map(tuple),
    unmet=st.lists(st.builds(UnmetDemand, TEXTS, TEXTS, TEXTS, TEXTS, NUMBERS, TEXTS, TEXTS), max_size=3).map(
        tuple
    ),
    moves=st.lists(MOVES, max_size=3).map(tuple),
    prices=st.lists(
        st.builds(
            ShadowPrice,
            SOME_TEXT,
            SOME_TEXT,
            TEXTS,
            st.floats(0, 1e6, exclude_min=True),
            TEXTS,
            st.floats(-1e9, 1e9),
            st.floats(-1e9, 1e9),
            TEXTS,
        ),
        max_size=3,
    ).map(tuple),
    solver=TEXTS,
    solve_s=NUMBERS,
)


@given(PLANS)
@settings(max_examples=150, deadline=None)
def test_a_sound_plan_survives_json(plan):
    text = plan_to_json(plan)
    assert plan_from_json(text) == plan
    assert plan_from_json(text.encode()) == plan
    assert plan_to_json(plan_from_json(text)) == text


def problems_of(read, content):
    """Messages of all faults that a reader finds; any error but ours goes through."""
    try:
        read(content, "any")
    except DocumentError as error:
        return [str(problem) for problem in error.problems]
    return []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(st.text() | JSON.map(json.dumps) | JSON.map(lambda v: yaml.safe_dump(v, allow_unicode=True)))
@settings(max_examples=300, deadline=None)
def test_no_text_makes_the_fleet_reader_crash(text):
    assert all(problem.startswith("any") for problem in problems_of(parse_fleet, text))


@given(st.binary() | st.text() | JSON.map(json.dumps))
@settings(max_examples=300, deadline=None)
def test_no_content_makes_the_plan_reader_crash(content):
    assert all(problem.startswith("any") for problem in problems_of(plan_from_json, content))


def places(value, path=()):
    """Every place inside a document."""
    yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in entries:
        yield from places(item, (*path, key))


@st.composite
def damaged(draw, documents):
    """A good document with one to three places changed, removed or added to."""
    document = copy.deepcopy(draw(documents))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(places(document))))
        if not path:
            continue
        parent = document
        for key in path[:-1]:
            parent = parent[key]
        action = draw(st.sampled_from(["set", "remove", "add"]))
        if action == "set":
            parent[path[-1]] = draw(JSON | st.sampled_from([0, 1, -1, 1e9, 0.5, "H100", "B", "x"]))
        elif action == "remove":
            del parent[path[-1]]
        elif isinstance(parent, dict):
            parent[draw(TEXTS)] = draw(JSON)
    return document


@given(damaged(st.sampled_from([DOCUMENTS[name] for name in REFERENCE_FLEETS])))
@settings(max_examples=300, deadline=None)
def test_a_damaged_fleet_is_refused_with_a_place_or_still_sound(document):
    """Whatever is damaged, the answer is a sound fleet or faults that name the file."""
    text = yaml.safe_dump(document, allow_unicode=True)
    problems = problems_of(parse_fleet, text)
    assert all(problem.startswith("any") for problem in problems)
    if not problems:
        fleet = parse_fleet(text, "any")
        assert parse_fleet(dump_fleet(fleet), "again.yaml") == fleet


def reader_accepts(owner, book, document):
    decoder = Decoder(book, allow_implausible=True)
    decoder.read(owner, document)
    return not decoder.faults


def comparable(value):
    """The document without the two known differences between JSON Schema and the reader.

    JSON Schema takes 3.0 for an integer, and the ``$`` of Python's expressions matches before a last newline.
    """
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if isinstance(value, float):
        return (
            int(value) if math.isfinite(value) and value.is_integer() else value if math.isfinite(value) else None
        )
    return value.rstrip("\n") if isinstance(value, str) else value


def agree(owner, book, validator, document):
    document = comparable(document)
    assert validator.is_valid(document) == reader_accepts(owner, book, document)


FLEET_VALIDATOR = jsonschema.Draft202012Validator(fleet_schema())
PLAN_VALIDATOR = jsonschema.Draft202012Validator(plan_schema())


@given(damaged(st.sampled_from([DOCUMENTS[name] for name in REFERENCE_FLEETS])))
@settings(max_examples=300, deadline=None)
def test_the_published_fleet_schema_and_the_reader_agree(document):
    if isinstance(document, dict) and "allow_implausible" not in document:
        agree(Fleet, FLEET_BOOK, FLEET_VALIDATOR, document)


@given(damaged(PLANS.map(lambda plan: json.loads(plan_to_json(plan)))))
@settings(max_examples=200, deadline=None)
def test_the_published_plan_schema_and_the_reader_agree(document):
    agree(PlanDocument, PLAN_BOOK, PLAN_VALIDATOR, document)
