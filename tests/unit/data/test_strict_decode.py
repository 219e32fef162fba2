"""The strict reader: one fault for each thing that is wrong, and a suggestion."""

import enum
from dataclasses import dataclass
from typing import Literal

import pytest

from data.errors import InputError
from data.strict.decode import FAILED, Decoder
from data.strict.encode import to_plain
from data.strict.faults import Fault, dotted, line_of, nearest, one_of, to_errors
from data.strict.rules import NAME, POSITIVE, Rule, RuleBook


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Inner:
    size_s: float
    count: int = 1


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner
    items: tuple[Inner, ...] = ()
    table: dict[str, float] | None = None
    colour: Colour = Colour.RED
    kind: Literal["a", "b"] = "a"
    flag: bool = False


BOOK = RuleBook(
    annotations=True,
    keys={Outer: {"items": "inners"}},
    rules={Outer: {"name": NAME}, Inner: {"size_s": Rule(minimum=0, plausible=(0.01, 100)), "count": POSITIVE}},
)
GOOD = {
    "name": "n1",
    "inner": {"size_s": 1},
    "inners": [{"size_s": 0.5, "count": 3}],
    "table": {"x": 2},
    "colour": "blue",
    "kind": "b",
    "flag": True,
}


def read(document):
    decoder = Decoder(BOOK)
    return decoder.read(Outer, document), decoder.faults


def test_every_kind_of_field_is_read():
    value, faults = read(GOOD)
    assert faults == []
    expected = Outer("n1", Inner(1.0), (Inner(0.5, 3),), {"x": 2.0}, Colour.BLUE, "b", True)
    assert value == expected
    assert to_plain(value, BOOK)["inners"] == [{"size_s": 0.5, "count": 3}]
    assert to_plain(Outer("n", Inner(1.0)), BOOK, keep_defaults=False) == {"name": "n", "inner": {"size_s": 1.0}}


def test_f130_an_unknown_key_is_a_fault_with_the_nearest_valid_name():
    value, faults = read({**GOOD, "inners": [{"siz_s": 1}]})
    assert value is FAILED
    assert Fault(("inners", 0, "siz_s"), "unknown key", expected="'size_s'?") in faults


def test_f130_keys_that_start_with_x_are_free():
    value, faults = read({**GOOD, "x-owner": "platform team", "inner": {"size_s": 1, "x-note": [1, 2]}})
    assert faults == []
    assert isinstance(value, Outer)


@pytest.mark.parametrize(
    ("change", "path", "problem", "expected"),
    [
        ({"name": 7}, "name", "wrong value", "quote it"),
        ({"name": "a b"}, "name", "not allowed here", "letters"),
        ({"inner": []}, "inner", "wrong value", "a mapping with keys"),
        ({"inner": {"size_s": "1"}}, "inner.size_s", "wrong value", "a number, 0 or more"),
        ({"inner": {"size_s": True}}, "inner.size_s", "wrong value", "a number"),
        ({"inner": {"size_s": float("nan")}}, "inner.size_s", "not a finite number", "a number"),
        ({"inner": {"size_s": 10**400}}, "inner.size_s", "not a finite number", "a number"),
        ({"inner": {"size_s": -1}}, "inner.size_s", "out of range", "0 or more"),
        ({"inner": {"size_s": 1, "count": 0}}, "inner.count", "out of range", "above 0"),
        ({"inner": {"size_s": 1, "count": 1.0}}, "inner.count", "wrong value", "a whole number"),
        ({"inner": {"size_s": 1, "count": None}}, "inner.count", "wrong value", "a whole number"),
        ({"inners": {}}, "inners", "wrong value", "a list"),
        ({"table": [1]}, "table", "wrong value", "a mapping of names"),
        ({"table": {"x": "y"}}, "table.x", "wrong value", "a number"),
        ({"colour": "rad"}, "colour", "wrong value", "'red'? (one of blue, red)"),
        ({"kind": "c"}, "kind", "wrong value", "one of a, b"),
        ({"flag": "true"}, "flag", "wrong value", "true or false"),
    ],
)
def test_each_wrong_value_names_its_place_and_what_is_right(change, path, problem, expected):
    value, faults = read({**GOOD, **change})
    assert value is FAILED
    (fault,) = faults
    assert dotted(fault.path) == path
    assert fault.problem == problem
    assert expected in fault.expected


def test_all_faults_are_collected_in_one_pass():
    _, faults = read({"inner": {"count": -1, "colour": 1}, "inners": [{"size_s": "x"}, {}], "flag": 0})
    assert sorted(dotted(fault.path) for fault in faults) == [
        "flag",
        "inner.colour",
        "inner.count",
        "inner.size_s",
        "inners[0].size_s",
        "inners[1].size_s",
        "name",
    ]


@pytest.mark.parametrize(("value", "meant"), [(2000, "did you mean 2?"), (0.002, "did you mean 2?"), (1e9, "")])
def test_f132_a_slip_of_unit_is_refused_with_what_was_meant(value, meant):
    _, (fault,) = read({**GOOD, "inner": {"size_s": value}})
    assert fault.problem == "implausible value"
    assert meant in fault.expected
    decoder = Decoder(BOOK, allow_implausible=True)
    assert isinstance(decoder.read(Outer, {**GOOD, "inner": {"size_s": value}}), Outer)


def test_zero_is_never_implausible_where_the_range_allows_it():
    value, faults = read({**GOOD, "inner": {"size_s": 0}})
    assert faults == []
    assert value.inner.size_s == 0


def test_errors_come_in_the_order_of_lines_with_file_and_field():
    faults = [Fault(("b", 1), "second", value=3, expected="4"), Fault(("a", "deep", "er"), "first")]
    errors = to_errors(faults, InputError, "f.yaml", {(): 1, ("a",): 2, ("b", 1): 9})
    assert [str(error) for error in errors] == [
        "f.yaml:2: a.deep.er: first",
        "f.yaml:9: b[1]: second (got 3); expected 4",
    ]


def test_suggestions():
    assert nearest("stale_aftr_ms", ["stale_after_ms", "name"]) == "stale_after_ms"
    assert nearest("zzz", ["stale_after_ms"]) is None
    assert nearest(3, ["3"]) is None
    assert one_of("q", []) == "nothing, because none is declared"
    assert one_of("q", [f"n{i:02}" for i in range(20)]).endswith("and 8 more")
    assert line_of(("z",), {}) is None
