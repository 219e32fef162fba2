"""Which callers tell of first tokens; of the others nothing can be concluded from silence."""

from __future__ import annotations

from collections import OrderedDict

MOST_TELLERS = 10_000


class FirstTokenTellers:
    """Callers that have told of a first token once; the least recent are forgotten beyond a bound."""

    def __init__(self) -> None:
        self._owners: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, owner: str) -> bool:
        return owner in self._owners

    def told(self, owner: str) -> None:
        """A first token of this caller was told when it came."""
        self._owners[owner] = None
        self._owners.move_to_end(owner)
        if len(self._owners) > MOST_TELLERS:
            self._owners.popitem(last=False)
