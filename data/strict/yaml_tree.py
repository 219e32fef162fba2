"""YAML text to plain values with the line of every key and item.

Stricter than YAML itself: one document, no anchors, no aliases, no tags, no duplicate keys, text keys, and numbers
as people write them (``1e3`` is a number; ``010`` and ``1:30``, which YAML 1.1 reads as 8 and 90, are refused).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import yaml

from data.strict.faults import Fault, Path

MAX_BYTES = 5_000_000
MAX_DEPTH = 24

_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]{0,30}|[1-9][0-9]{0,2}(_[0-9]{3}){1,9})")
_NUMBER = re.compile(r"[-+]?((0|[1-9][0-9]{0,30})(\.[0-9]{0,60})?|\.[0-9]{1,60})([eE][-+]?[0-9]{1,4})?")
_NUMBER_LIKE = re.compile(r"[-+]?[0-9.][0-9a-fA-FxXoO_:.]*")
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
_AMBIGUOUS = {"yes", "no", "on", "off", "y", "n"}
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class AmbiguousScalar:
    """An unquoted value that YAML readers disagree about; no field accepts it."""

    text: str

    def __repr__(self) -> str:
        return self.text


@dataclass(slots=True)
class YamlTree:
    """A document as plain values; ``value`` is ``None`` where it could not be read at all."""

    value: object = None
    lines: dict[Path, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)


def read_yaml(text: str) -> YamlTree:
    """Parse one document; every fault is in ``faults``, nothing is raised."""
    tree = YamlTree()
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        tree.faults.append(Fault((), "document too large", value=len(text), expected=f"at most {MAX_BYTES} bytes"))
        return tree
    try:
        refusal = _refuse_events(text)
        if refusal is not None:
            tree.faults.append(refusal)
            return tree
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        tree.faults.append(Fault((), f"not valid YAML: {error.problem or error.context}", line=line))
        return tree
    except (yaml.YAMLError, ValueError) as error:
        tree.faults.append(Fault((), f"not valid YAML: {str(error).splitlines()[0]}"))
        return tree
    if node is None:
        tree.faults.append(Fault((), "the document is empty", expected="a mapping with keys"))
        return tree
    tree.value = _plain(node, (), tree)
    return tree


def _refuse_events(text: str) -> Fault | None:
    """The first thing in the event stream that a configuration file has no use for, before any tree is built."""
    depth = 0
    documents = 0
    for event in yaml.parse(text, Loader=_Loader):
        line = event.start_mark.line + 1 if event.start_mark else None
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            return Fault((), "anchors and aliases are not supported", line=line, expected="the value written out")
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag not in (None, "!"):
            return Fault((), "tags are not supported", value=event.tag, line=line, expected="a plain value")
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                return Fault((), "more than one document", line=line, expected="one document")
        elif isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                return Fault((), "nested too deeply", line=line, expected=f"at most {MAX_DEPTH} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return None


def _plain(node: yaml.Node, path: Path, tree: YamlTree) -> object:
    tree.lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, tree)
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*path, i), tree) for i, item in enumerate(node.value)]
    return _scalar(node)


def _mapping(node: yaml.MappingNode, path: Path, tree: YamlTree) -> dict[str, object]:
    found: dict[str, object] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            tree.faults.append(Fault(path, "a key must be a text", line=line, expected="a plain word as key"))
            continue
        key = str(key_node.value)
        if key in found:
            problem = f"duplicate key, first on line {tree.lines[(*path, key)]}"
            tree.faults.append(Fault((*path, key), problem, line=line, expected="each key once"))
            continue
        tree.lines[(*path, key)] = line
        found[key] = _plain(value_node, (*path, key), tree)
    return found


def _scalar(node: yaml.Node) -> object:
    text = str(node.value)
    if getattr(node, "style", None):  # quoted or block text is text, whatever it looks like
        return text
    if text.lower() in _WORDS and text in (text.lower(), text.upper(), text.capitalize()):
        return _WORDS[text.lower()]
    if text.lower() in _AMBIGUOUS:
        return AmbiguousScalar(text)
    if _WHOLE.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    if text.lower() in (".inf", "-.inf", "+.inf", ".nan"):
        return float(text.replace(".", ""))
    if _NUMBER_LIKE.fullmatch(text) and node.tag != "tag:yaml.org,2002:str":
        return AmbiguousScalar(text)
    return text
