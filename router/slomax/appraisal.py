"""What a request costs, when it must go at the latest and when it leaves the queue: worked out once, at entry."""

from __future__ import annotations

from dataclasses import replace

from data.types import FloatArray, IntArray
from router.slomax.admission import Admission
from router.slomax.context import FlowContext
from router.slomax.gate import Gate
from router.slomax.reaches import Reaches
from router.slomax.settings import SloMaxSettings
from router.slomax.types import Arrival
from router.slomax.waiting import Waiting
from router.types import RouteRequest

BOOSTS = 3
"""Returns that make a request more urgent, at most."""


class Appraisal:
    """Turns arrivals into entries of a queue.

    Args:
        context: The router's view of the fleet.
        settings: Price of decoding, what counts as long, boost.
        gate: Knows the prefill times.
        admission: Knows targets and times to live.
    """

    def __init__(self, context: FlowContext, settings: SloMaxSettings, gate: Gate, admission: Admission) -> None:
        self._context = context
        self._settings = settings
        self._gate = gate
        self._admission = admission
        self.guaranteed = frozenset(one.name for one in context.fleet.tenants if one.tier == "guaranteed")
        """Tenants of the guaranteed tier."""
        self._tickets = 0
        self.reaches = Reaches()
        """Sets of endpoints that requests may go to."""

    def renewed(self, context: FlowContext, admission: Admission) -> Appraisal:
        """The same under another fleet file; tickets count on."""
        new = Appraisal(context, self._settings, self._gate, admission)
        new._tickets, new.reaches = self._tickets, self.reaches
        return new

    def prefill_s(self, request: RouteRequest) -> FloatArray:
        """Predicted prefill time at every endpoint of the table."""
        return self._gate.prefill_s(request.input_tokens, self._context.hit_tokens(request))

    def entry(self, arrival: Arrival, rows: IntArray, prefill_s: FloatArray) -> Waiting:
        """The entry of an arrival that ``rows`` (not empty) may serve; it gets a ticket of its own."""
        self._tickets += 1
        return self._appraised(
            Waiting(
                ticket=self._tickets,
                request=arrival.request,
                arrived_s=arrival.arrived_s,
                due_s=0.0,
                expires_s=arrival.arrived_s + self._admission.ttl_s(arrival.request.workload_class, arrival.ttl_s),
                work=0.0,
                prefill_s=0.0,
                long=False,
            ),
            rows,
            prefill_s,
        )

    def again(self, item: Waiting, request: RouteRequest) -> Waiting:
        """The same ticket for a request that is read anew; its time to live can only get shorter."""
        ttl_s = self._admission.ttl_s(request.workload_class, item.expires_s - item.arrived_s)
        new = replace(item, request=request, expires_s=item.arrived_s + ttl_s, late=False, gone=False)
        rows = self._context.candidates(request)
        return self._appraised(new, rows, self.prefill_s(request)) if len(rows) else new

    def _appraised(self, item: Waiting, rows: IntArray, prefill_s: FloatArray) -> Waiting:
        request, settings = item.request, self._settings
        rtt_s = self._context.rtt_s(request.origin)
        own_s, token_s, path_s, step_s = self._gate.least_of(rows, prefill_s, rtt_s)
        item.guaranteed = request.tenant in self.guaranteed
        item.prefill_s = own_s
        item.reach = self.reaches.number(rows)
        item.long = own_s >= settings.long_prefill_s
        item.work = max(own_s / token_s + settings.decode_price * request.expected_output_tokens, 1.0)
        # Round trip and one step of an idle engine pass besides the prefill, at the best.
        item.due_s = self._admission.latest_start_s(item, path_s + step_s)
        item.due_s -= settings.boost_s * min(request.attempt, BOOSTS)
        return item
