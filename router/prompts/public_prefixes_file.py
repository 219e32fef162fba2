"""The file in which an operator declares prompt beginnings that all tenants share, such as a system prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from data.errors import DocumentError, InputError
from data.fleet.types import Fleet
from data.strict.decode import Decoder
from data.strict.faults import Fault, to_errors
from data.strict.rules import Rule, RuleBook
from data.strict.yaml_tree import read_yaml
from router.prompts.block_hashes import PublicPrefixes
from router.prompts.prefix_scope import Scope


@dataclass(frozen=True, slots=True)
class PublicPrefix:
    """One beginning that is nobody's secret.

    Attributes:
        model: ``name@version`` whose tokenizer made the ids.
        token_ids: The beginning, chat template included.
        adapter: LoRA adapter; empty = none.
    """

    model: str
    token_ids: tuple[int, ...] = field(repr=False)
    adapter: str = ""


@dataclass(frozen=True, slots=True)
class PublicPrefixesFile:
    """The whole file."""

    public_prefixes: tuple[PublicPrefix, ...]


BOOK = RuleBook(
    annotations=True,
    rules={PublicPrefix: {"token_ids": Rule(minimum=0, maximum=2**32 - 1)}},
)


def load_public_prefixes(path: Path) -> tuple[PublicPrefix, ...]:
    """Read the file.

    Raises:
        InputError: It cannot be read.
        DocumentError: It is wrong; ``problems`` holds every fault.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", source=str(path)) from error
    tree = read_yaml(text)
    faults = list(tree.faults)
    document: object = None
    if not faults:
        document = Decoder(BOOK, faults=faults).read(PublicPrefixesFile, tree.value)
    if faults or not isinstance(document, PublicPrefixesFile):
        found = faults or [Fault((), "not a list of public prefixes")]
        problems = to_errors(found, DocumentError, str(path), tree.lines)
        problems[0].problems = tuple(problems)
        raise problems[0]
    return document.public_prefixes


def declare_public(
    declared: Sequence[PublicPrefix], fleet: Fleet
) -> tuple[PublicPrefixes, tuple[PublicPrefix, ...]]:
    """What the hashes of a fleet's prompts are made with, and what was left out: the fleet has no such model.

    Raises:
        InputError: A beginning is shorter than a block of its model.
    """
    blocks = {model.key: model.engine.block_tokens for model in fleet.models}
    public = PublicPrefixes()
    for prefix in declared:
        if prefix.model in blocks:
            scope = Scope(prefix.model, prefix.adapter, block_tokens=blocks[prefix.model])
            public.declare(prefix.token_ids, scope)
    return public, tuple(prefix for prefix in declared if prefix.model not in blocks)
