"""One YAML document from a file into one frozen dataclass, with all its faults or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from data.errors import DocumentError, InputError
from data.strict.decode import Decoder
from data.strict.faults import Fault, to_errors
from data.strict.rules import RuleBook
from data.strict.yaml_tree import read_yaml

DocumentT = TypeVar("DocumentT")


def read_document(
    path: Path,
    owner: type[DocumentT],
    book: RuleBook,
    check: Callable[[DocumentT], Sequence[Fault]],
    *,
    secret: bool = False,
) -> DocumentT:
    """Read a file strictly.

    Args:
        path: The file, YAML or JSON, UTF-8.
        owner: What it holds.
        book: Rules of its classes.
        check: What the rules cannot say; asked only of a document that keeps them.
        secret: Show no value of the file in any fault: somebody may have put a token where its digest belongs.

    Raises:
        InputError: The file cannot be read.
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
        document = Decoder(book, faults=faults).read(owner, tree.value)
    if isinstance(document, owner) and not faults:
        faults += check(document)
    if isinstance(document, owner) and not faults:
        return document
    if secret:
        faults = [replace(fault, value=None) for fault in faults]
    problems = to_errors(faults, DocumentError, str(path), tree.lines)
    problems[0].problems = tuple(problems)
    raise problems[0]
