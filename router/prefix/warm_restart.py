"""Take what the index knows from events to another process: capture, and restore what is still true."""

from __future__ import annotations

from typing import Literal

from router.kv_events.apply import FeedSettings, RowEvents
from router.kv_events.feed import Feed
from router.prefix.index import PrefixIndex
from router.prefix.snapshot_file import NOTHING, RowSnapshot

Dropped = Literal["incarnation", "settings"]


def capture_row(index: PrefixIndex, feed: Feed, endpoint_id: str, incarnation: str) -> RowSnapshot | None:
    """What one endpoint holds now; ``None`` while its events are not in order, so that nothing can be vouched for.

    Each row stands for itself: rows may be captured one by one, with other work in between. A row with own hashes
    takes about a millisecond for 100,000 blocks; one with engine hashes a pass over the whole table.
    """
    events = feed.events
    if feed.warming or feed.next_sequence is None:
        return None
    settings = events.settings
    if settings.hash_source == "tokens":
        engine, own = events.aliases.pairs()
    else:
        engine, own = NOTHING, index.held(events.row)
    return RowSnapshot(
        endpoint_id,
        incarnation,
        settings.model,
        settings.block_tokens,
        settings.hash_source,
        feed.next_sequence,
        feed.last_made_at_s,
        index.may_have_gaps(events.row),
        own,
        engine,
    )


def restore_row(
    index: PrefixIndex, events: RowEvents, saved: RowSnapshot, incarnation: str | None
) -> tuple[Feed, Dropped | None]:
    """A feed that goes on where the saved one ended, or a cold one and why.

    Args:
        index: The new index; the row is empty.
        events: Applies events to the row, with today's settings.
        saved: What was captured.
        incarnation: Which life the endpoint is in now; ``None`` = cannot be told, so nothing is believed.
    """
    if incarnation is None or incarnation != saved.incarnation:
        return Feed(events), "incarnation"
    if not _same(events.settings, saved):
        return Feed(events), "settings"
    events.aliases.load(saved.engine, saved.own)
    index.stored(events.row, saved.own)
    if saved.gaps:
        index.assume_gaps(events.row)
    return Feed(events, saved.next_sequence, saved.last_made_at_s), None


def _same(settings: FeedSettings, saved: RowSnapshot) -> bool:
    return (settings.model, settings.block_tokens, settings.hash_source) == (
        saved.model,
        saved.block_tokens,
        saved.hash_source,
    )
