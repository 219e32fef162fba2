"""The class of a request: hints, task types, lengths, tenants' own targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from data.errors import SettingError
from data.fleet.types import ClassMatch, Fleet, Tenant, WorkloadClass
from data.types import Slo
from router.slomax.classify import Classifier, ClassQuestion, promises

FAST = WorkloadClass("fast", Slo(ttft_s=0.5, tpot_s=0.05), match=ClassMatch(max_input_tokens=2000))
CHAT = WorkloadClass("chat", Slo(ttft_s=1.0, tpot_s=0.05), match=ClassMatch(max_output_budget=2000))
LONG = WorkloadClass("long", Slo(ttft_s=5.0), match=ClassMatch(min_input_tokens=8000))
BULK = WorkloadClass("bulk", Slo(deadline_s=600.0), match=ClassMatch(task_types=("embed", "batch")))
TENANTS = (
    Tenant("plain"),
    Tenant("trusted", may_hint_class=True),
    Tenant("relaxed", targets=Slo(ttft_s=1.0)),
    Tenant("greedy", targets=Slo(ttft_s=0.01)),
)


@pytest.fixture
def classify() -> Callable[..., Any]:
    fleet = Fleet("f", (), (), (), (), (), (CHAT, BULK, LONG, FAST), TENANTS)
    classifier = Classifier(fleet)

    def ask(tokens: int = 1000, tenant: str = "plain", budget: int = 500, **more: str) -> tuple[str, str, bool]:
        found = classifier.classify(ClassQuestion(tenant, tokens, budget, **more))
        return found.workload_class.name, found.rule, found.ignored_hint

    return ask


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ({"tokens": 1000}, ("fast", "length", False)),
        ({"tokens": 3000}, ("chat", "length", False)),
        ({"tokens": 7999}, ("chat", "length", False)),
        ({"tokens": 8000}, ("long", "length", False)),
        ({"tokens": 3000, "budget": 4000}, ("bulk", "loosest", False)),
        ({"tokens": 9000, "task_type": "embed"}, ("bulk", "task_type", False)),
        ({"tokens": 3000, "task_type": "poetry"}, ("chat", "length", False)),
        ({"tenant": "nobody"}, ("fast", "length", False)),
    ],
)
def test_task_type_then_length(classify: Any, question: dict[str, Any], answer: tuple[str, str, bool]) -> None:
    assert classify(**question) == answer


def test_a_hint_wins_only_where_the_tenant_may_give_one(classify: Any) -> None:
    assert classify(hint="bulk", tenant="trusted") == ("bulk", "hint", False)
    assert classify(hint="bulk", tenant="plain") == ("fast", "length", True)
    assert classify(hint="bulk", tenant="nobody") == ("fast", "length", True)
    assert classify(hint="no such class", tenant="trusted") == ("fast", "length", True)
    assert classify(hint="fast", tenant="plain") == ("fast", "length", False)


def test_own_targets_choose_among_what_fits(classify: Any) -> None:
    # "long" is the most specific for 9,000 tokens, but only "chat" promises one second.
    assert classify(tokens=9000, tenant="relaxed") == ("chat", "tenant_targets", False)
    assert classify(tokens=9000, tenant="greedy") == ("long", "length", False)
    assert classify(tokens=1000, tenant="relaxed") == ("fast", "length", False)


def test_the_order_of_the_file_means_nothing() -> None:
    question = ClassQuestion("plain", 9000, 100)
    kinds = (CHAT, BULK, LONG, FAST)
    for classes in (kinds, kinds[::-1]):
        fleet = Fleet("f", (), (), (), (), (), classes, TENANTS)
        assert Classifier(fleet).classify(question).workload_class is LONG


def test_a_fleet_without_classes_is_refused() -> None:
    with pytest.raises(SettingError, match="no workload class"):
        Classifier(Fleet("f", (), (), (), (), (), (), ()))


def test_a_promise_must_cover_every_wanted_target() -> None:
    assert promises(Slo(ttft_s=1.0, tpot_s=0.05), Slo(ttft_s=1.0))
    assert not promises(Slo(ttft_s=1.0), Slo(ttft_s=1.0, tpot_s=0.05))
    assert not promises(Slo(ttft_s=1.1), Slo(ttft_s=1.0))
