"""Which site a session was last served at, remembered for a bounded number of sessions."""

from __future__ import annotations

from collections import OrderedDict

MOST_SESSIONS = 100_000
FORGOTTEN_AFTER_S = 1800.0


class SessionSites:
    """Site of each session's latest turn; the oldest are forgotten.

    Args:
        most: Sessions that are remembered.
    """

    def __init__(self, most: int = MOST_SESSIONS) -> None:
        self._most = most
        self._sites: OrderedDict[tuple[str, str, str], tuple[str, float, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sites)

    def site(self, tenant: str, model: str, session: str, now_s: float) -> str:
        """Where its latest turn went; "" = not known, or too long ago."""
        found = self._sites.get((tenant, model, session)) if session else None
        return found[0] if found is not None and now_s - found[1] <= FORGOTTEN_AFTER_S else ""

    def tokens_at(self, tenant: str, model: str, session: str, site: str, now_s: float) -> int:
        """Prompt tokens of its latest turn, if that went to ``site``: what a cache there may hold. Else 0."""
        if not site or self.site(tenant, model, session, now_s) != site:
            return 0
        return self._sites[tenant, model, session][2]

    def served(self, tenant: str, model: str, session: str, site: str, tokens: int, now_s: float) -> None:
        """A turn with a prompt of ``tokens`` tokens was sent to ``site``."""
        if not session:
            return
        key = tenant, model, session
        self._sites[key] = (site, now_s, tokens)
        self._sites.move_to_end(key)
        while len(self._sites) > self._most:
            self._sites.popitem(last=False)
