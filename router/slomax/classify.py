"""The workload class of a request, from what it says and how long it is. This file is the whole rule.

(1) A hint names the class, if the tenant may give hints and the class exists.
(2) Else a class that lists the request's task type takes it, if its lengths fit.
(3) Else the classes without a list of task types whose lengths fit stand to choice; an unknown task type goes by
    length. Of several, one that promises the tenant's own targets is preferred, then the one with the longest
    least prompt, then the one with the tightest targets, then the first name.
(4) No class fits: the class with the loosest targets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from data.errors import SettingError
from data.fleet.types import Fleet, Tenant, WorkloadClass
from data.types import Slo

Rule = Literal["hint", "task_type", "length", "tenant_targets", "loosest"]


@dataclass(frozen=True, slots=True)
class ClassQuestion:
    """What is known of a request before it has a class.

    Attributes:
        tenant: Name of the verified tenant.
        input_tokens: Prompt length.
        output_budget: Bound of the caller on the output.
        task_type: What the caller says it is for; "" = unknown.
        hint: Class that the caller names; "" = none.
    """

    tenant: str
    input_tokens: int
    output_budget: int
    task_type: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Classified:
    """The class and the rule that decided.

    Attributes:
        workload_class: The class.
        rule: Number (1) to (4) of the module, by name; ``tenant_targets`` is (3) decided by the tenant's targets.
        ignored_hint: The caller named another class and may not, or there is none of that name.
    """

    workload_class: WorkloadClass
    rule: Rule
    ignored_hint: bool = False


class Classifier:
    """The rule for one fleet.

    Args:
        fleet: Its classes with their ``match``, its tenants.

    Raises:
        SettingError: If the fleet has no class.
    """

    def __init__(self, fleet: Fleet) -> None:
        if not fleet.classes:
            raise SettingError("the fleet has no workload class", field="classes", expected="at least one")
        self._by_name = {kind.name: kind for kind in fleet.classes}
        self._order = sorted(fleet.classes, key=_specific_first)
        self._loosest = max(fleet.classes, key=lambda kind: (tightness_s(kind.slo), kind.name))
        self._tenants = {tenant.name: tenant for tenant in fleet.tenants}

    def classify(self, question: ClassQuestion) -> Classified:
        """The class of one request; every request gets one."""
        tenant = self._tenants.get(question.tenant)
        hinted = self._by_name.get(question.hint)
        if hinted is not None and tenant is not None and tenant.may_hint_class:
            return Classified(hinted, "hint")
        kind, rule = self._choose(question, tenant)
        return Classified(kind, rule, ignored_hint=question.hint not in ("", kind.name))

    def _choose(self, question: ClassQuestion, tenant: Tenant | None) -> tuple[WorkloadClass, Rule]:
        fitting = [kind for kind in self._order if _lengths_fit(kind, question)]
        if question.task_type:
            for kind in fitting:
                if question.task_type in kind.match.task_types:
                    return kind, "task_type"
        by_length = [kind for kind in fitting if not kind.match.task_types]
        if not by_length:
            return self._loosest, "loosest"
        if tenant is not None and tenant.targets != Slo():
            for kind in by_length:
                if promises(kind.slo, tenant.targets):
                    return kind, "tenant_targets" if kind is not by_length[0] else "length"
        return by_length[0], "length"


def tightness_s(slo: Slo) -> float:
    """How soon the targets want something: time to first token, else the deadline, else never; seconds."""
    if slo.ttft_s is not None:
        return slo.ttft_s
    return slo.deadline_s if slo.deadline_s is not None else math.inf


def promises(slo: Slo, wanted: Slo) -> bool:
    """Whether a class with targets ``slo`` promises at least what is wanted."""
    pairs = ((slo.ttft_s, wanted.ttft_s), (slo.tpot_s, wanted.tpot_s), (slo.deadline_s, wanted.deadline_s))
    return all(want is None or (have is not None and have <= want) for have, want in pairs)


def _specific_first(kind: WorkloadClass) -> tuple[int, float, str]:
    return -kind.match.min_input_tokens, tightness_s(kind.slo), kind.name


def _lengths_fit(kind: WorkloadClass, question: ClassQuestion) -> bool:
    match = kind.match
    if question.input_tokens < match.min_input_tokens:
        return False
    if match.max_input_tokens is not None and question.input_tokens > match.max_input_tokens:
        return False
    return match.max_output_budget is None or question.output_budget <= match.max_output_budget
