"""What serves now, as an event for watchers."""

from __future__ import annotations

from router.pb.v1 import router_pb2 as pb
from router.serving.live import LiveRouter


def watch_event(live: LiveRouter, cause: str) -> pb.WatchEvent:
    """Versions and the state of every endpoint; a change of the model comes without them."""
    serving = live.serving
    event = pb.WatchEvent(
        revision=serving.revision,
        plan_id=serving.plan_id,
        model_version=serving.model_version,
        fleet_digest=live.state.digest,
        cause=cause,
    )
    if cause != "model":
        event.endpoints.extend(endpoint_states(live))
    return event


def endpoint_states(live: LiveRouter) -> list[pb.EndpointState]:
    """State of every known endpoint."""
    table, now_s = live.core.table, live.clock()
    states = []
    for endpoint in live.rows.endpoints():
        row = live.rows.row(endpoint.endpoint_id)
        if row is None:
            continue
        states.append(
            pb.EndpointState(
                endpoint_id=endpoint.endpoint_id,
                site=endpoint.spec.site,
                model=endpoint.spec.model,
                address=endpoint.address,
                ready=bool(table.ready[row]),
                draining=bool(table.draining[row]),
                healthy=bool(table.healthy[row]),
                metrics=live.metrics_state(row, now_s),
                incarnation=int(table.incarnation[row]),
            )
        )
    return states
