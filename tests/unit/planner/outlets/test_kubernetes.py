"""The Kubernetes renderer: golden text, exact totals, names that Kubernetes takes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from data.errors import SettingError
from data.plan import PlanDocument, PlannedReplicas, PlanStatus
from planner.outlets.kubernetes import (
    KubernetesSettings,
    kubernetes_documents,
    kubernetes_yaml,
    label_value,
    object_name,
)

PLAN = PlanDocument(
    plan_id="plan-5f0c2a9e1b7d4c38",
    parent_id=None,
    made_at="2026-01-01T00:00:00Z",
    valid_from="2026-01-01T00:00:00Z",
    valid_until="2026-01-01T00:15:00Z",
    fleet="small",
    input_digests={},
    status=PlanStatus.OPTIMAL,
    objective=1.0,
    goodput_tokens_per_s=1.0,
    bound=1.0,
    bound_name="test",
    replicas=(
        PlannedReplicas("B", "chat-h100", "chat", "H100", 2, 3, 1),
        PlannedReplicas("B", "big_H100", "big@v1", "H100", 4, 0),
        PlannedReplicas("C", "chat-h100", "chat", "H100", 2, 1),
    ),
)
GOLDEN = """\
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: chat-h100
  namespace: llm
  labels:
    tokenfleet.io/site: B
    tokenfleet.io/config: chat-h100
    tokenfleet.io/model: chat
    tokenfleet.io/gpu-type: H100
  annotations:
    tokenfleet.io/plan: plan-5f0c2a9e1b7d4c38
    tokenfleet.io/valid-until: '2026-01-01T00:15:00Z'
    tokenfleet.io/gpus-per-replica: '2'
    tokenfleet.io/prewarmed: '1'
spec:
  replicas: 3
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: big-h100-a44f48
  namespace: llm
  labels:
    tokenfleet.io/site: B
    tokenfleet.io/config: big_H100
    tokenfleet.io/model: big-v1-20faa3
    tokenfleet.io/gpu-type: H100
  annotations:
    tokenfleet.io/plan: plan-5f0c2a9e1b7d4c38
    tokenfleet.io/valid-until: '2026-01-01T00:15:00Z'
    tokenfleet.io/gpus-per-replica: '4'
    tokenfleet.io/prewarmed: '0'
spec:
  replicas: 0
---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata:
  name: chat
  namespace: llm
  labels:
    tokenfleet.io/model: chat
    tokenfleet.io/site: B
  annotations:
    tokenfleet.io/plan: plan-5f0c2a9e1b7d4c38
spec:
  selector:
    matchLabels:
      tokenfleet.io/model: chat
  targetPorts:
  - number: 8000
  endpointPickerRef:
    name: chat-picker
    port:
      number: 9002
"""


def test_the_text_of_a_site_is_golden() -> None:
    assert kubernetes_yaml(PLAN, "B", KubernetesSettings(namespace="llm")) == GOLDEN


def test_the_text_reads_back_as_the_documents() -> None:
    settings = KubernetesSettings()
    read = list(yaml.safe_load_all(kubernetes_yaml(PLAN, "B", settings)))
    assert read == kubernetes_documents(PLAN, "B", settings)


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("Deployment", "apps/v1"),
        ("StatefulSet", "apps/v1"),
        ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1"),
    ],
)
def test_kinds(kind: str, version: str) -> None:
    document = kubernetes_documents(PLAN, "C", KubernetesSettings(kind=kind))[0]
    assert (document["kind"], document["apiVersion"]) == (kind, version)


def test_one_more_replica_changes_totals_by_exactly_its_gpus_f101() -> None:
    """F101: replicas are replicas and GPUs are GPUs; no factor is applied twice."""
    rows = list(PLAN.replicas)
    rows[0] = replace(rows[0], replicas=4)

    def totals(plan: PlanDocument) -> tuple[int, int]:
        found = [d for d in kubernetes_documents(plan, "B", KubernetesSettings()) if "replicas" in d["spec"]]
        counts = [
            (d["spec"]["replicas"], int(d["metadata"]["annotations"]["tokenfleet.io/gpus-per-replica"]))
            for d in found
        ]
        return sum(n for n, _ in counts), sum(n * g for n, g in counts)

    (pods, gpus), (more_pods, more_gpus) = totals(PLAN), totals(replace(PLAN, replicas=tuple(rows)))
    assert (more_pods - pods, more_gpus - gpus) == (1, 2)


def test_a_model_without_replicas_has_no_pool_and_an_unnamed_one_is_not_touched() -> None:
    documents = kubernetes_documents(PLAN, "B", KubernetesSettings())
    assert [d["metadata"]["name"] for d in documents if d["kind"] == "InferencePool"] == ["chat"]
    assert len(documents) == 3


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"kind": "Pod"}, "kind"),
        ({"port": 0}, "port"),
        ({"picker_port": 70000}, "picker_port"),
        ({"name": "{zone}"}, "name"),
        ({"pool": "{"}, "pool"),
    ],
)
def test_settings_are_checked(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(SettingError, match=field):
        KubernetesSettings(**wrong)


def test_a_site_without_rows_and_two_configurations_of_one_name_are_errors() -> None:
    with pytest.raises(SettingError, match="not in this plan"):
        kubernetes_documents(PLAN, "X", KubernetesSettings())
    with pytest.raises(SettingError, match="share an object"):
        kubernetes_documents(PLAN, "B", KubernetesSettings(name="engine"))


@given(st.text(max_size=200))
def test_any_name_becomes_one_that_kubernetes_takes(text: str) -> None:
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", object_name(text))
    assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", label_value(text))
    assert object_name(object_name(text)) == object_name(text)


@given(st.lists(st.text(max_size=80), min_size=2, max_size=6, unique=True))
def test_different_names_stay_different(names: list[str]) -> None:
    assert len({object_name(name) for name in names}) == len(names)
    assert len({label_value(name) for name in names}) == len(names)
