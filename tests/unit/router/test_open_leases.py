"""Open leases: by number, by request, by expiry; a lease that ended leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from data.fleet.types import WorkloadClass
from data.types import Slo
from router.serving.lease_terms import LeaseSettings, lease_s
from router.serving.open_leases import OpenLease, OpenLeases
from router.types import RouteRequest


def request(number: int) -> RouteRequest:
    return RouteRequest(number, "m@1", "t", "c", "A", 10, 10, 5.0, (), 16, "", Slo())


def lease(number: int, length_s: float, now_s: float) -> OpenLease:
    return OpenLease(
        number, number, request(number), number % 3, "e", "H100", "", now_s, 0.0, 0.0, length_s, now_s + length_s
    )


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "renew", "remove", "wait"]), st.integers(0, 30), st.sampled_from([5.0, 20.0])
    ),
    max_size=120,
)


@given(steps)
def test_exactly_the_leases_whose_time_is_over_expire(plan: list[tuple[str, int, float]]) -> None:
    leases, model, now_s = OpenLeases(0), dict[int, OpenLease](), 0.0
    for what, number, length_s in plan:
        if what == "add" and number not in model:
            model[number] = lease(number, length_s, now_s)
            leases.add(model[number])
        elif what == "renew" and number in model:
            leases.renew(model[number], now_s)
        elif what == "remove" and number in model:
            leases.remove(model.pop(number))
        elif what == "wait":
            now_s += number / 4
        assert {each.wire_id for each in leases.expired(now_s)} == {
            number for number, each in model.items() if each.expires_s <= now_s
        }
        assert len(leases) == len(model)
        assert all(leases.get(number) is each for number, each in model.items())
        assert all(leases.of(number, 0) is each for number, each in model.items())
    for each in list(leases):
        leases.remove(each)
    assert not vars(leases)["_queues"]
    assert not vars(leases)["_by_key"]


def test_a_lease_is_as_long_as_its_class_needs() -> None:
    settings = LeaseSettings()
    length: Callable[..., float] = lambda **given: lease_s(WorkloadClass("c", **given), settings)  # noqa: E731
    assert length(slo=Slo()) == 600.0
    assert length(slo=Slo(deadline_s=100.0)) == 150.0
    assert length(slo=Slo(deadline_s=100.0), client_timeout_s=300.0) == 450.0
    assert length(slo=Slo(), client_timeout_s=1.0) == 30.0
