"""A plan as Kubernetes objects: patches of replica counts and labels, and the members of inference pools.

Pure: a plan in, documents out; nothing talks to a cluster. Each site is a cluster (or a namespace) of its own, so
documents are grouped by site. A patch holds only what the planner decides, made for
``kubectl apply --server-side --field-manager=tokenfleet``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import yaml

from data.errors import SettingError
from data.plan import PlanDocument, PlannedReplicas

LABEL = "tokenfleet.io"
MOST_NAME = 63
KINDS = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1"}
POOL_VERSION = "inference.networking.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """How a plan maps to objects.

    Attributes:
        namespace: Of all objects.
        kind: What a configuration's replicas are: Deployment, StatefulSet or LeaderWorkerSet.
        name: Name of such an object; ``{site}``, ``{config}`` and ``{model}`` are filled in.
        pool: Name of an inference pool, likewise (``{site}`` and ``{model}``).
        port: Port of the engines in a pool (1 to 65,535).
        picker: Service of the endpoint picker of each pool, likewise.
        picker_port: Its port (1 to 65,535).
    """

    namespace: str = "default"
    kind: str = "Deployment"
    name: str = "{config}"
    pool: str = "{model}"
    port: int = 8000
    picker: str = "{model}-picker"
    picker_port: int = 9002

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise SettingError("unknown", field="kind", value=self.kind, expected="one of " + ", ".join(KINDS))
        for name in ("port", "picker_port"):
            if not 1 <= getattr(self, name) <= 65_535:
                raise SettingError("out of range", field=name, value=getattr(self, name), expected="1 to 65,535")
        for name in ("name", "pool", "picker"):
            try:
                getattr(self, name).format(site="s", config="c", model="m")
            except (KeyError, IndexError, ValueError) as error:
                raise SettingError(
                    "not a pattern",
                    field=name,
                    value=getattr(self, name),
                    expected="a text with {site}, {config}, {model}",
                ) from error


def kubernetes_documents(plan: PlanDocument, site: str, settings: KubernetesSettings) -> list[dict[str, Any]]:
    """The objects of one site, in the order of the plan: one for each configuration, then one pool a model.

    A configuration that the plan names with 0 replicas is scaled to 0. One that it does not name is not touched:
    a missing row is no order to delete.

    Raises:
        SettingError: The site is not in the plan, or two configurations would have the same object.
    """
    rows = [row for row in plan.replicas if row.site == site]
    if not rows:
        sites = ", ".join(sorted({row.site for row in plan.replicas}))
        raise SettingError("not in this plan", field="site", value=site, expected=sites or "a plan with replicas")
    documents = [_workload(plan, row, settings) for row in rows]
    names = [document["metadata"]["name"] for document in documents]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SettingError("two configurations share an object", field="name", value=twice, expected="{config}")
    return [*documents, *_pools(plan, site, rows, settings)]


def kubernetes_yaml(plan: PlanDocument, site: str, settings: KubernetesSettings) -> str:
    """The same as a stream of YAML documents; the same plan gives the same text."""
    documents = kubernetes_documents(plan, site, settings)
    text: str = yaml.safe_dump_all(documents, sort_keys=False, explicit_start=True, allow_unicode=True)
    return text


def _workload(plan: PlanDocument, row: PlannedReplicas, settings: KubernetesSettings) -> dict[str, Any]:
    name = object_name(settings.name.format(site=row.site, config=row.config, model=row.model))
    return {
        "apiVersion": KINDS[settings.kind],
        "kind": settings.kind,
        "metadata": {
            "name": name,
            "namespace": settings.namespace,
            "labels": _labels(row),
            "annotations": {
                f"{LABEL}/plan": plan.plan_id,
                f"{LABEL}/valid-until": plan.valid_until,
                f"{LABEL}/gpus-per-replica": str(row.gpus_per_replica),
                f"{LABEL}/prewarmed": str(row.prewarmed),
            },
        },
        "spec": {"replicas": row.replicas},
    }


def _pools(
    plan: PlanDocument, site: str, rows: list[PlannedReplicas], settings: KubernetesSettings
) -> Iterator[dict[str, Any]]:
    """One pool for each model that has a replica: its members are the pods with the model's label."""
    for model in dict.fromkeys(row.model for row in rows if row.replicas):
        names = {"site": site, "model": model, "config": ""}
        yield {
            "apiVersion": POOL_VERSION,
            "kind": "InferencePool",
            "metadata": {
                "name": object_name(settings.pool.format(**names)),
                "namespace": settings.namespace,
                "labels": {f"{LABEL}/model": label_value(model), f"{LABEL}/site": label_value(site)},
                "annotations": {f"{LABEL}/plan": plan.plan_id},
            },
            "spec": {
                "selector": {"matchLabels": {f"{LABEL}/model": label_value(model)}},
                "targetPorts": [{"number": settings.port}],
                "endpointPickerRef": {
                    "name": object_name(settings.picker.format(**names)),
                    "port": {"number": settings.picker_port},
                },
            },
        }


def _labels(row: PlannedReplicas) -> dict[str, str]:
    return {
        f"{LABEL}/site": label_value(row.site),
        f"{LABEL}/config": label_value(row.config),
        f"{LABEL}/model": label_value(row.model),
        f"{LABEL}/gpu-type": label_value(row.gpu_type),
    }


def object_name(text: str) -> str:
    """A name that Kubernetes takes (RFC 1123): itself if it is one, else cleaned, with a digest so that different
    names stay different."""
    if re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", text):
        return text
    return _cleaned(text, r"[^a-z0-9]+", text.lower())


def label_value(text: str) -> str:
    """A label value that Kubernetes takes; cleaned like a name where it is none."""
    if re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", text):
        return text
    return _cleaned(text, r"[^A-Za-z0-9_.]+", text)


def _cleaned(text: str, bad: str, start: str) -> str:
    tail = sha256(text.encode()).hexdigest()[:6]
    clean = re.sub(bad, "-", start).strip("-_.")[: MOST_NAME - len(tail) - 1].rstrip("-_.")
    return f"{clean}-{tail}" if clean else f"x-{tail}"
