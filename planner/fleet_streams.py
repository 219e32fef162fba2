"""Spreads a synthetic profile over the tenants and models of a fleet, so that every request is permitted."""

from __future__ import annotations

from data.errors import SettingError
from data.fleet.types import Fleet
from data.synth.assign import Assignment
from data.synth.mix import Stream
from data.synth.profile import TraceProfile


def fleet_streams(
    fleet: Fleet, profile: TraceProfile, rate_per_s: float, workload_class: str | None = None
) -> tuple[Stream, ...]:
    """One stream for each tenant and model it may use; tenants share the rate equally, each over its models.

    Requests enter at the entry sites in equal shares (at the first site where the fleet has no entry site).

    Args:
        fleet: Tenants with their permissions, models, classes and sites.
        profile: What requests look like.
        rate_per_s: Mean requests/s of all streams together (above 0).
        workload_class: Class of every request; ``None`` = the fleet's first.

    Raises:
        SettingError: The fleet has no such class.
    """
    classes = [kind.name for kind in fleet.classes]
    if workload_class is not None and workload_class not in classes:
        raise SettingError(
            "unknown class", field="synth", value=workload_class, expected="one of " + ", ".join(classes)
        )
    kind = workload_class or (classes[0] if classes else "")
    entries = [site.name for site in fleet.sites if site.role == "entry"] or [
        site.name for site in fleet.sites[:1]
    ]
    origins = tuple((name, 1.0) for name in entries) or (("", 1.0),)
    uses = [(tenant.name, tenant.models or tuple(model.key for model in fleet.models)) for tenant in fleet.tenants]
    streams = []
    for tenant, models in uses or [("", tuple(model.key for model in fleet.models))]:
        rate = rate_per_s / max(len(uses), 1) / len(models)
        streams += [Stream(profile, rate, Assignment(model, tenant, kind, origins)) for model in models]
    return tuple(streams)
