"""Whether a trained model may serve: the release checks, and a race on the newest window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from data.errors import ModelError
from models.evaluate import evaluate
from models.samples import Samples
from models.store import ModelStore
from models.training import Trained


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a trained model may serve, and why not.

    Attributes:
        promote: It may.
        reasons: Why not, one line each; empty if it may.
        losses: Loss on the newest window of ``model``, ``prior`` and, if a model serves, ``serving``.
    """

    promote: bool
    reasons: tuple[str, ...]
    losses: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """As plain values, for the card and ``--json``."""
        return {"promote": self.promote, "reasons": list(self.reasons), "losses": dict(self.losses)}


def promotion_verdict(trained: Trained, store: ModelStore) -> Verdict:
    """Promote only what passes the checks and beats the prior and the serving model on the newest window.

    A serving model that cannot be loaded, or has another feature schema, counts as beaten.
    """
    reasons = [f"check failed: {name} = {trained.checks.values[name]:.4g}" for name in trained.checks.failed]
    if not trained.report.loss < trained.prior_report.loss:
        reasons.append(f"loss {trained.report.loss:.4f} does not beat the prior's {trained.prior_report.loss:.4f}")
    serving = serving_loss(store, trained.test)
    if serving is not None and not trained.report.loss < serving:
        reasons.append(f"loss {trained.report.loss:.4f} does not beat the serving model's {serving:.4f}")
    losses = {"model": trained.report.loss, "prior": trained.prior_report.loss}
    return Verdict(not reasons, tuple(reasons), losses if serving is None else losses | {"serving": serving})


def serving_loss(store: ModelStore, test: Samples) -> float | None:
    """Loss of the serving model on ``test``; ``None`` without one that loads."""
    try:
        if store.current() is None:
            return None
        predictor = store.load()
    except ModelError:
        return None
    return evaluate(predictor, test.recoded(predictor.codes)).loss
