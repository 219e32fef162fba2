"""Builds a placement without a solver: promises first, then the replica with most value per GPU, until none pays.

It is the fallback when the solver fails and the baseline that the solver must beat. Every hard rule holds at each
step, so that it may stop anywhere.
"""

from __future__ import annotations

import numpy as np

from data.types import FloatArray, IntArray
from solver.greedy_state import DUST, GreedyState, add_replicas, fits, fresh_state
from solver.matrix import PlacementMatrix
from solver.problem import BoolArray, FlowPromise, PlacementProblem
from solver.solution import Origin, PlacementSolution, assemble_values, read_solution


def greedy_placement(problem: PlacementProblem, built: PlacementMatrix) -> PlacementSolution:
    """A placement that keeps every hard rule, and every promise that it finds room for."""
    state = fresh_state(problem)
    running = running_that_fits(problem)
    for i in np.flatnonzero(np.minimum(problem.placements.lower, running)):
        add_replicas(state, int(i), int(min(problem.placements.lower[i], running[i])))
    _keep_replica_promises(state, running)
    _keep_covers(state)
    _grow_flows(state)
    _serve(state)
    _grow(state)
    _restore(state, running)
    return _finish(state, built, Origin.GREEDY)


def kept_placement(problem: PlacementProblem, built: PlacementMatrix) -> PlacementSolution:
    """The running replicas (as many as still fit), with demand routed to them greedily."""
    state = fresh_state(problem)
    for i, count in enumerate(running_that_fits(problem)):
        add_replicas(state, i, int(count))
    _serve(state)
    return _finish(state, built, Origin.KEPT)


def running_that_fits(problem: PlacementProblem) -> IntArray:
    """Running replicas less those that today's pools and power no longer hold, frozen ones kept first."""
    places = problem.placements
    state = fresh_state(problem)
    order = np.lexsort((-places.mix_rate, -places.lower))
    for i in order:
        for _ in range(int(min(places.current[i], places.upper[i]))):
            if not fits(state, int(i)):
                break
            add_replicas(state, int(i), 1)
    return state.replicas


def _keep_replica_promises(state: GreedyState, running: IntArray) -> None:
    """Add replicas for each promise: running ones first, then those with the fewest GPUs."""
    places = state.problem.placements
    ranked = sorted(state.problem.replica_promises, key=lambda p: (-p.penalty, p.label))
    for promise in ranked:
        options = promise.placements
        order = options[np.lexsort((options, -places.mix_rate[options], places.gpus[options]))]
        missing = promise.replicas - int(state.replicas[options].sum())
        for pass_running in (True, False):
            for i in order:
                while missing > 0 and fits(state, int(i)):
                    if pass_running and state.replicas[i] >= running[i]:
                        break
                    add_replicas(state, int(i), 1)
                    missing -= 1


def _keep_covers(state: GreedyState) -> None:
    """For each protected model add replicas away from its largest site until the rest covers the promise."""
    places = state.problem.placements
    for cover in state.problem.covers:
        options = np.flatnonzero((places.model == cover.model) & (places.mix_rate > 0))
        order = options[np.lexsort((options, places.gpus[options] / places.mix_rate[options]))]
        while True:
            capacity = np.bincount(
                places.site[options],
                places.mix_rate[options] * state.replicas[options],
                len(state.problem.sites.names),
            )
            largest = int(capacity.argmax())
            if capacity.sum() - capacity[largest] >= cover.tokens_per_s - DUST:
                break
            # Away from the largest site: capacity there does not count once it is lost.
            free = [
                int(i) for i in order if fits(state, int(i)) and (places.site[i] != largest or not capacity.any())
            ]
            if not free:
                break
            add_replicas(state, free[0], 1)


def _serve(state: GreedyState) -> None:
    """Route demand to the spare capacity that stands: promised throughput first, then by value."""
    jobs = state.problem.commodities
    for promise in _ranked_flows(state.problem):
        _keep_flow(state, promise)
    segment_end = np.cumsum(jobs.width, axis=1)
    order = np.lexsort((np.arange(jobs.value.size), -jobs.value.ravel()))
    for k in order.tolist():
        j, segment = divmod(k, jobs.value.shape[1])
        _route(state, j, float(segment_end[j, segment] - state.flows[j].sum()))


def _ranked_flows(problem: PlacementProblem) -> list[FlowPromise]:
    return sorted(problem.flow_promises, key=lambda p: (-p.penalty, p.label))


def _keep_flow(state: GreedyState, promise: FlowPromise) -> float:
    """Route promised commodities to spare capacity; what is still missing."""
    missing = promise.tokens_per_s - float(state.flows[promise.commodities][:, promise.sites].sum())
    for j in promise.commodities:
        missing -= _route(state, int(j), min(missing, _unserved(state, int(j))), promise.sites)
    return missing


def _grow_flows(state: GreedyState) -> None:
    """Add replicas for promised throughput that the standing ones cannot give, fastest per GPU first."""
    places, jobs = state.problem.placements, state.problem.commodities
    for promise in _ranked_flows(state.problem):
        kinds, models = jobs.workload_class[promise.commodities], jobs.model[promise.commodities]
        reach = jobs.allowed[promise.commodities] & promise.sites
        able = (places.model[:, None] == models) & reach[:, places.site].T
        rate = (places.rate[:, kinds] * able).max(axis=1, initial=0.0)
        order = [i for i in np.argsort(-rate / places.gpus, kind="stable").tolist() if rate[i] > 0]
        while _keep_flow(state, promise) > DUST:
            free = next((i for i in order if fits(state, i)), None)
            if free is None:
                break
            add_replicas(state, free, 1)


def _unserved(state: GreedyState, j: int) -> float:
    return float(state.problem.commodities.width[j].sum() - state.flows[j].sum())


def _route(state: GreedyState, j: int, amount: float, within: BoolArray | None = None) -> float:
    """Send up to ``amount`` of commodity ``j`` to spare capacity, nearest site first; what was sent."""
    jobs, places = state.problem.commodities, state.problem.placements
    kind, mine = jobs.workload_class[j], state.places_of[jobs.model[j]]
    able = mine[(state.replicas[mine] > state.used[mine]) & (places.rate[mine, kind] > 0)]
    sent = 0.0
    for s in np.argsort(jobs.route_cost[j], kind="stable") if len(able) else ():
        if amount - sent <= DUST or not jobs.allowed[j, s] or (within is not None and not within[s]):
            continue
        for i in able[places.site[able] == s]:
            share = jobs.entering[j, s]
            room = state.ingress_left[s] / share if share > 0 else np.inf
            spare = max(state.replicas[i] - state.used[i], 0.0) * places.rate[i, kind]
            part = min(amount - sent, spare, max(room, 0.0))
            if part <= DUST:
                continue
            state.used[i] += part / places.rate[i, kind]
            state.loads[i, kind] += part
            state.flows[j, s] += part
            state.ingress_left[s] -= part * share
            sent += part
    return sent


def _grow(state: GreedyState) -> None:
    """Add the replica with the most value per GPU until none is worth its start."""
    places = state.problem.placements
    gains = np.zeros(len(places))
    for model, mine in enumerate(state.places_of):
        gains[mine] = _gains(state, model)
    claim = np.maximum(places.gpus, 1)
    while len(gains):
        score = gains / claim
        i = int(score.argmax())
        if score[i] <= DUST:
            return
        if not fits(state, i):
            gains[i] = 0.0
            continue
        add_replicas(state, i, 1)
        _fill(state, i)
        model = int(places.model[i])
        gains[state.places_of[model]] = _gains(state, model)


def _worth(state: GreedyState, i: int) -> list[tuple[float, int, float]]:
    """Unserved segments that placement ``i`` may serve: (value per replica's worth, commodity, tokens/s)."""
    jobs, places = state.problem.commodities, state.problem.placements
    site, model = places.site[i], places.model[i]
    found: list[tuple[float, int, float]] = []
    mine = state.jobs_of[model]
    for j in mine[jobs.allowed[mine, site]]:
        rate = places.rate[i, jobs.workload_class[j]]
        if rate <= 0:
            continue
        left = np.cumsum(jobs.width[j]) - state.flows[j].sum()
        for value, open_width in zip(jobs.value[j], np.minimum(left, jobs.width[j]), strict=True):
            gain = (value - jobs.route_cost[j, site]) * rate
            if open_width > DUST and gain > 0:
                found.append((gain, int(j), float(open_width)))
    return sorted(found, key=lambda item: (-item[0], item[1]))


def _gains(state: GreedyState, model: int) -> FloatArray:
    """Value that one more replica at each placement of a model would add, less its start and its GPUs."""
    places, jobs = state.problem.placements, state.problem.commodities
    at, mine = state.places_of[model], state.jobs_of[model]
    site, count = places.site[at], jobs.width.shape[1]
    rate = np.repeat(
        places.rate[np.ix_(at, jobs.workload_class[mine])] * jobs.allowed[np.ix_(mine, site)].T, count, 1
    )
    cost = np.repeat(jobs.route_cost[np.ix_(mine, site)].T, count, 1)
    gain = (jobs.value[mine].ravel() - cost) * rate
    left = np.cumsum(jobs.width[mine], axis=1) - state.flows[mine].sum(axis=1, keepdims=True)
    width = np.clip(np.minimum(left, jobs.width[mine]), 0.0, None).ravel()
    share = np.divide(width, rate, out=np.zeros_like(rate), where=(rate > 0) & (gain > 0) & (width > DUST))
    best = np.argsort(-gain, axis=1, kind="stable")
    share, gain = np.take_along_axis(share, best, 1), np.take_along_axis(gain, best, 1)
    taken = np.clip(1.0 - (np.cumsum(share, axis=1) - share), 0.0, share)
    start = np.where(state.replicas[at] >= places.current[at], places.start_cost[at], 0.0)
    total: FloatArray = (taken * gain).sum(axis=1) - start - state.problem.gpu_price * places.gpus[at]
    return total


def _fill(state: GreedyState, i: int) -> None:
    """Route unserved demand to placement ``i``, best value first."""
    jobs, places = state.problem.commodities, state.problem.placements
    site = int(places.site[i])
    for _gain_rate, j, width in _worth(state, i):
        kind = jobs.workload_class[j]
        share = jobs.entering[j, site]
        room = state.ingress_left[site] / share if share > 0 else np.inf
        spare = max(state.replicas[i] - state.used[i], 0.0) * places.rate[i, kind]
        part = min(width, spare, max(room, 0.0))
        if part > DUST:
            state.used[i] += part / places.rate[i, kind]
            state.loads[i, kind] += part
            state.flows[j, site] += part
            state.ingress_left[site] -= part * share


def _restore(state: GreedyState, running: IntArray) -> None:
    """Keep running replicas that nobody needed the room of: a fallback drains nothing without a reason."""
    for i in np.flatnonzero(running > state.replicas):
        while state.replicas[i] < running[i] and fits(state, int(i)):
            add_replicas(state, int(i), 1)


def _finish(state: GreedyState, built: PlacementMatrix, origin: Origin) -> PlacementSolution:
    none = np.zeros(len(state.problem.placements), dtype=np.int64)
    values = assemble_values(state.problem, built, state.replicas, none, state.loads, state.flows)
    return read_solution(state.problem, built, values, origin)
