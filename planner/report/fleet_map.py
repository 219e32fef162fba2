"""The fleet as a drawn map (SVG): sites as boxes with their GPU pools, links as lines with RTT and bandwidth.

Two drawings are made, a wide one (sites on a ring) and a narrow one (sites in a column, links as arcs at the
right); the style sheet shows the one that fits. Everything in them also stands in the tables beside the map.
"""

from __future__ import annotations

import html
import math
from dataclasses import dataclass

from data.fleet.types import Fleet, Link, Site
from data.plan import PlanDocument

BOX_WIDTH = 224
BOX_HEAD = 46
LINE = 19
BAR = 8
ARC_STEP = 20


@dataclass(frozen=True, slots=True)
class PoolUse:
    """GPUs of one pool: all, kept out of the planner's reach, and taken by replicas."""

    gpu_type: str
    count: int
    reserved: int
    used: int


@dataclass(frozen=True, slots=True)
class _Box:
    site: Site
    pools: tuple[PoolUse, ...]
    replicas: int
    x: float
    y: float

    @property
    def height(self) -> float:
        return BOX_HEAD + max(1, len(self.pools)) * (LINE + BAR + 6) + 10

    @property
    def centre(self) -> tuple[float, float]:
        return self.x + BOX_WIDTH / 2, self.y + self.height / 2


def pool_use(fleet: Fleet, plan: PlanDocument | None, site: str) -> tuple[PoolUse, ...]:
    """GPU use of each pool of a site under the plan, or under the running placement when there is no plan."""
    taken: dict[str, int] = {}
    for gpu_type, gpus in _placed(fleet, plan, site):
        taken[gpu_type] = taken.get(gpu_type, 0) + gpus
    return tuple(
        PoolUse(pool.gpu_type, pool.count, pool.reserved_gpus, taken.get(pool.gpu_type, 0))
        for pool in fleet.pools
        if pool.site == site
    )


def _placed(fleet: Fleet, plan: PlanDocument | None, site: str) -> list[tuple[str, int]]:
    """(GPU type, GPUs) of every group of replicas at a site."""
    if plan is not None:
        return [(r.gpu_type, r.replicas * r.gpus_per_replica) for r in plan.replicas if r.site == site]
    configs = {config.name: config for config in fleet.configs}
    return [
        (configs[one.config].gpu_type, one.replicas * configs[one.config].tensor_parallel)
        for one in fleet.placement
        if one.site == site
    ]


def replicas_at(fleet: Fleet, plan: PlanDocument | None, site: str) -> int:
    """Replicas at a site under the plan, or under the running placement when there is no plan."""
    placed = plan.replicas if plan is not None else fleet.placement
    return sum(one.replicas for one in placed if one.site == site)


def wide_map(fleet: Fleet, plan: PlanDocument | None) -> str:
    """Sites on an ellipse, the first one at the left."""
    count = len(fleet.sites)
    blank = _boxes(fleet, plan, [(0.0, 0.0)] * count)
    tallest = max((box.height for box in blank.values()), default=BOX_HEAD)
    radius_x, radius_y = max(330.0, 46.0 * count), max(tallest / 2 + 70, 40.0 * count)
    if count == 1:
        radius_x = radius_y = 0.0
    width, height = 2 * radius_x + BOX_WIDTH + 20, 2 * radius_y + tallest + 20
    places = []
    for index in range(count):
        angle = math.pi + 2 * math.pi * index / count
        x = width / 2 + radius_x * math.cos(angle) - BOX_WIDTH / 2
        y = height / 2 + radius_y * math.sin(angle) - tallest / 2
        places.append((x, y))
    boxes = _boxes(fleet, plan, places)
    links = [_straight(link, boxes[link.a], boxes[link.b]) for link in fleet.links]
    return _svg("map-wide", width, height, _layers(links, boxes))


def narrow_map(fleet: Fleet, plan: PlanDocument | None) -> str:
    """Sites in a column, each link an arc at the right, labelled in the order of the links."""
    places, y = [], 10.0
    for box in _boxes(fleet, plan, [(0.0, 0.0)] * len(fleet.sites)).values():
        places.append((10.0, y))
        y += box.height + 26
    boxes = _boxes(fleet, plan, places)
    lanes = sorted(fleet.links, key=lambda link: abs(boxes[link.a].y - boxes[link.b].y))
    arcs = [_arc(link, boxes[link.a], boxes[link.b], lane) for lane, link in enumerate(lanes)]
    width = 10 + BOX_WIDTH + 24 + ARC_STEP * max(1, len(lanes)) + 62
    return _svg("map-narrow", width, y, _layers(arcs, boxes))


def _layers(links: list[tuple[str, str]], boxes: dict[str, _Box]) -> list[str]:
    """Lines first, then their labels over every line, then the boxes."""
    return [*(line for line, _ in links), *(text for _, text in links), *(_draw(box) for box in boxes.values())]


def _boxes(fleet: Fleet, plan: PlanDocument | None, places: list[tuple[float, float]]) -> dict[str, _Box]:
    return {
        site.name: _Box(site, pool_use(fleet, plan, site.name), replicas_at(fleet, plan, site.name), x, y)
        for site, (x, y) in zip(fleet.sites, places, strict=True)
    }


def _straight(link: Link, a: _Box, b: _Box) -> tuple[str, str]:
    """A line between two boxes and its label, off the middle where lines across the ring cross."""
    (xa, ya), (xb, yb) = a.centre, b.centre
    across = min(abs(xa - xb), abs(ya - yb)) < BOX_WIDTH / 4
    at = 0.36 if across else 0.5
    x, y = xa + (xb - xa) * at, ya + (yb - ya) * at
    line = f'<line class="link" x1="{xa:.0f}" y1="{ya:.0f}" x2="{xb:.0f}" y2="{yb:.0f}" {_stroke(link)}/>'
    return line, _pill(x, y, f"{_rtt(link)} · {_bandwidth(link)}")


def _arc(link: Link, a: _Box, b: _Box, lane: int) -> tuple[str, str]:
    """An arc at the right of the column, and its label."""
    top, low = sorted((a, b), key=lambda box: box.y)
    y1, y2 = top.centre[1] + 6 + lane, low.centre[1] - 6 - lane
    x, out = 10 + BOX_WIDTH, 10 + BOX_WIDTH + 24 + ARC_STEP * lane
    path = (
        f"M{x} {y1:.0f} H{out - 8} Q{out} {y1:.0f} {out} {y1 + 8:.0f}"
        f" V{y2 - 8:.0f} Q{out} {y2:.0f} {out - 8} {y2:.0f} H{x}"
    )
    text = f'<text class="small halo" x="{out + 4}" y="{(y1 + y2) / 2 + 4:.0f}">{html.escape(_rtt(link))}</text>'
    return f'<path class="link" d="{path}" {_stroke(link)}/>', text


def _draw(box: _Box) -> str:
    site = box.site
    kind = "no GPUs, entry" if site.role == "entry" else f"{box.replicas} replicas"
    parts = [
        f'<g transform="translate({box.x:.0f} {box.y:.0f})">',
        f'<rect class="site {html.escape(site.role)}" width="{BOX_WIDTH}" height="{box.height:.0f}" rx="10"/>',
        f'<text class="name" x="14" y="22">{_cut(site.name, 14)}</text>',
        f'<text class="small" x="{BOX_WIDTH - 14}" y="22" text-anchor="end">{_cut(site.zone, 12)}</text>',
        f'<text class="small" x="14" y="39">{html.escape(kind)}</text>',
    ]
    for index, pool in enumerate(box.pools):
        parts.append(_pool(pool, BOX_HEAD + index * (LINE + BAR + 6)))
    if not box.pools:
        parts.append(f'<text class="small" x="14" y="{BOX_HEAD + 16}">business entry</text>')
    return "".join(parts) + "</g>"


def _pool(pool: PoolUse, y: float) -> str:
    """GPU type, use in figures, and a bar: taken, free, and kept out of reach."""
    full = BOX_WIDTH - 28
    share = full / pool.count if pool.count else 0.0
    used, reserved = share * min(pool.used, pool.count), share * min(pool.reserved, pool.count)
    return (
        f'<text class="pool" x="14" y="{y + 14:.0f}">{_cut(pool.gpu_type, 16)}</text>'
        f'<text class="pool" x="{BOX_WIDTH - 14}" y="{y + 14:.0f}" text-anchor="end">'
        f"{pool.used} of {pool.count}</text>"
        + _bar("free", 14, y + LINE, full)
        + _bar("kept", 14 + full - reserved, y + LINE, reserved)
        + _bar("used", 14, y + LINE, used)
    )


def _bar(name: str, x: float, y: float, width: float) -> str:
    return f'<rect class="{name}" x="{x:.1f}" y="{y:.0f}" width="{width:.1f}" height="{BAR}" rx="4"/>'


def _pill(x: float, y: float, text: str) -> str:
    width = 7.0 * len(text) + 14
    return (
        f'<rect class="pill" x="{x - width / 2:.0f}" y="{y - 11:.0f}" width="{width:.0f}" height="21" rx="10"/>'
        f'<text class="small" x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle">{html.escape(text)}</text>'
    )


def _stroke(link: Link) -> str:
    return f'stroke-width="{max(1.0, min(6.0, 1 + math.log10(max(link.bandwidth_gbps, 1.0)) * 1.6)):.1f}"'


def _rtt(link: Link) -> str:
    return f"{link.rtt_s * 1000:.3g} ms"


def _bandwidth(link: Link) -> str:
    return f"{link.bandwidth_gbps:.4g} Gbit/s"


def _cut(text: str, limit: int) -> str:
    return html.escape(text if len(text) <= limit else text[: limit - 1] + "…")


def _svg(name: str, width: float, height: float, parts: list[str]) -> str:
    """The drawing is hidden from screen readers: the tables beside it say the same in order."""
    box = f'viewBox="0 0 {width:.0f} {height:.0f}" style="max-width: {width * 1.2:.0f}px"'
    return f'<svg class="{name}" {box} aria-hidden="true" focusable="false">{"".join(parts)}</svg>'
