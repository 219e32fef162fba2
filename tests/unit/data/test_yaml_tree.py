"""YAML as this project reads it: lines, and what is refused."""

import pytest

from data.strict.yaml_tree import MAX_BYTES, AmbiguousScalar, read_yaml


def test_values_and_the_line_of_every_key_and_item():
    tree = read_yaml("a: 1\nb:\n  - x\n  - c: 2.5\n")
    assert tree.value == {"a": 1, "b": ["x", {"c": 2.5}]}
    assert tree.lines == {
        (): 1,
        ("a",): 1,
        ("b",): 2,
        ("b", 0): 3,
        ("b", 1): 4,
        ("b", 1, "c"): 4,
    }
    assert tree.faults == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("-3", -3),
        ("1_000_000", 1_000_000),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("2.", 2.0),
        ("true", True),
        ("False", False),
        ("~", None),
        ("'7'", "7"),
        ('"no"', "no"),
        ("2026-01-31", "2026-01-31"),
        ("1.5.2", "1.5.2"),
        ("v1", "v1"),
    ],
)
def test_plain_scalars(text, value):
    got = read_yaml(f"k: {text}").value["k"]
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize("text", ["no", "On", "y", "010", "1:30", "0x10", "1__0"])
def test_scalars_that_yaml_readers_disagree_about_are_marked(text):
    assert read_yaml(f"k: {text}").value["k"] == AmbiguousScalar(text)


@pytest.mark.parametrize(
    ("text", "problem", "line"),
    [
        ("a: 1\na: 2\n", "duplicate key, first on line 1", 2),
        ("a: &x 1\nb: *x\n", "anchors and aliases are not supported", 1),
        ("a: !!python/name:os.system x\n", "tags are not supported", 1),
        ("a: 1\n---\nb: 2\n", "more than one document", 2),
        ("a: b: c\n", "not valid YAML: mapping values are not allowed in this context", 1),
        ("? [a]\n: 1\n", "a key must be a text", 1),
        ("a:\n  - [\n", None, 3),
        ("", "the document is empty", None),
        ("[" * 50 + "]" * 50, "nested too deeply", 1),
    ],
)
def test_refused_documents_say_where(text, problem, line):
    (fault,) = read_yaml(text).faults
    assert problem is None or fault.problem == problem
    assert fault.line == line


def test_a_bomb_of_aliases_is_refused_before_it_grows():
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60))
    (fault,) = read_yaml(bomb).faults
    assert fault.problem == "anchors and aliases are not supported"


def test_a_million_open_brackets_do_not_exhaust_the_stack():
    (fault,) = read_yaml("[" * 1_000_000).faults
    assert "nest" in fault.problem


def test_a_document_above_the_size_limit_is_not_parsed():
    (fault,) = read_yaml("a: " + "x" * MAX_BYTES).faults
    assert fault.problem == "document too large"
