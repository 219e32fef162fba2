"""A fleet as the text of a fleet file that reads back to the same value."""

from __future__ import annotations

import re

import yaml

from data.fleet.load import ALLOW_IMPLAUSIBLE
from data.fleet.rules import FLEET_BOOK
from data.fleet.types import Fleet
from data.strict.decode import Decoder
from data.strict.encode import to_plain

_PLAIN_TEXT = re.compile(r"[A-Za-z_][A-Za-z0-9_./@+-]*")
_RESERVED = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


class _Dumper(yaml.SafeDumper):
    """Quotes every text that some YAML reader might take for something else."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = _PLAIN_TEXT.fullmatch(text) is not None and text.lower() not in _RESERVED
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _represent_text)


def dump_fleet(fleet: Fleet) -> str:
    """YAML text with fields at their default left out.

    A sound fleet survives the round trip: ``parse_fleet(dump_fleet(fleet), ...) == fleet``.
    """
    document = to_plain(fleet, FLEET_BOOK, keep_defaults=False)
    if _implausible(to_plain(fleet, FLEET_BOOK)):
        document = {ALLOW_IMPLAUSIBLE: True, **document}
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=110, default_flow_style=None)


def _implausible(document: object) -> bool:
    """Whether the fleet needs the key that accepts numbers outside their plausible range."""
    strict, lenient = Decoder(FLEET_BOOK), Decoder(FLEET_BOOK, allow_implausible=True)
    strict.read(Fleet, document)
    lenient.read(Fleet, document)
    return len(strict.faults) > len(lenient.faults)
