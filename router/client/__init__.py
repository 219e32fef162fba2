"""Client of the router: ask where a request should go, and always tell what became of it."""

from router.client.aio import AsyncRouterClient
from router.client.attempt import Attempt, RefusedError
from router.client.blocking import RouterClient
from router.client.query import Media, Placement, Query, Refusal
from router.client.settings import ClientSettings

__all__ = [
    "AsyncRouterClient",
    "Attempt",
    "ClientSettings",
    "Media",
    "Placement",
    "Query",
    "Refusal",
    "RefusedError",
    "RouterClient",
]
