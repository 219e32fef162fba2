"""The service as a routing policy, fed as in production: events, a booking, first tokens, ends."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.proof.dynamo_arm.chains import Chains
from benchmarks.proof.dynamo_arm.child import Child
from benchmarks.proof.dynamo_arm.messages import (
    Asked,
    Cleared,
    Ended,
    Notice,
    Opening,
    Prefilled,
    Removed,
    Stored,
    Worker,
)
from data.errors import SettingError
from data.types import IntArray, Outcome
from planner.sim.kv_cache import Notices
from router.policies.base import PolicyBase, PolicyContext
from router.policies.settings import Checked, at_least, whole
from router.types import FleetView, RouteRequest


@dataclass(frozen=True, slots=True)
class DynamoSelectionSettings(Checked):
    """Settings of the arm.

    Attributes:
        scale: Factor of the prefill blocks against the decode blocks.
        block_tokens: Tokens of a block as the service counts; divides the trace's block.
    """

    scale: float = at_least(0, 1.0)
    block_tokens: int = whole(4, 64)


class DynamoSelection(PolicyBase):
    """Every choice is made by the service in the child process.

    The child is asked once a decision: the turn carries all that happened since the last one, and the service has
    seen it before it chooses. What takes simulated time, such as the lag of events, has passed before.

    Attributes:
        decisions: Choices so far.
        seen_s: Time it took in all until events were seen.
        chosen_s: Time the service took in all to choose and book.
    """

    name = "dynamo_selection"

    def __init__(self, settings: DynamoSelectionSettings, context: PolicyContext, child: Child) -> None:
        super().__init__(context)
        self._settings = settings
        self._child = child
        self._chains = Chains()
        self._notices: list[Notice] = []
        self._booked: dict[str, int] = {}
        self._trace_block = 0
        self.decisions = 0
        self.seen_s = 0.0
        self.chosen_s = 0.0

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:  # noqa: ARG002
        """Ask the service, which books the request at once."""
        self._open(request.block_tokens)
        name = name_of(request)
        if name in self._booked:
            # It was chosen for before and not sent.
            self._end(name)
        self._chains.learn(request.block_hashes)
        asked = Asked(name, request.model, list(request.block_hashes), request.input_tokens, candidates.tolist())
        chosen = self._child.turn(self._notices, asked)
        self._notices.clear()
        self._booked[name] = chosen.worker
        self.decisions += 1
        self.seen_s += chosen.seen_s
        self.chosen_s += chosen.chosen_s
        return chosen.worker

    def first_token(self, request: RouteRequest, endpoint: int, now_s: float, ttft_s: float) -> None:  # noqa: ARG002
        """Its load moves from the prefill to the decode side."""
        name = name_of(request)
        if name in self._booked:
            self._notices.append(Prefilled(name))

    def finished(self, request: RouteRequest, outcome: Outcome) -> None:  # noqa: ARG002
        """Free what it booked."""
        name = name_of(request)
        if name in self._booked:
            self._end(name)

    def endpoint_reset(self, endpoint: int) -> None:
        """Nothing is booked there any more; what it holds is told by its events alone."""
        for name in [name for name, worker in self._booked.items() if worker == endpoint]:
            self._end(name)

    def blocks_changed(self, endpoint: int, notices: Notices | None) -> None:
        """An engine's event has become visible."""
        if notices is None:
            self._notices.append(Cleared(endpoint))
            return
        stored, removed = notices
        for parent, blocks in self._chains.runs(stored):
            self._notices.append(Stored(endpoint, blocks, parent))
        if removed:
            self._notices.append(Removed(endpoint, list(removed)))

    def _end(self, name: str) -> None:
        del self._booked[name]
        self._notices.append(Ended(name))

    def _open(self, trace_block: int) -> None:
        if trace_block == self._trace_block:
            return
        size = self._settings.block_tokens
        if self._trace_block or trace_block % size:
            expected = f"a divisor of {trace_block}, the one block size of the trace"
            raise SettingError("blocks do not fit", field="block_tokens", value=size, expected=expected)
        workers = [
            Worker(row, spec.model, spec.kv_capacity_tokens, spec.batch_token_budget)
            for row, spec in enumerate(self.table.specs)
        ]
        self._child.open(Opening(workers, size, trace_block // size))
        self._trace_block = trace_block


def name_of(request: RouteRequest) -> str:
    """Name of one attempt."""
    return f"{request.request_id}.{request.attempt}"
