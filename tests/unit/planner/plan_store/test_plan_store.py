"""The plan store: whole versions, one writer, a way back, and readers that never see half a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from data.errors import PlanFileError, SettingError
from data.plan import PlanDocument
from data.plan_io import read_plan
from planner.plan_store.entry import Baseline, EntryKind, StoreEntry, entry_from_json, entry_to_json
from planner.plan_store.layout import StoreFolder
from planner.plan_store.leader import NotLeaderError
from planner.plan_store.store import PlanStore

MakePlan = Callable[[int], PlanDocument]


@pytest.fixture
def store(tmp_path: Path) -> PlanStore:
    made = PlanStore(tmp_path / "plans")
    assert made.lead(1000.0)
    return made


def replicas(store: PlanStore) -> int:
    found = store.current()
    assert found is not None
    return found.plan.replicas[0].replicas


def test_an_empty_store_has_no_plan(store: PlanStore) -> None:
    assert store.current() is None
    assert store.folder.history() == []
    with pytest.raises(PlanFileError, match="no earlier plan"):
        store.roll_back(1001.0, "why not")


def test_the_newest_version_is_in_force_and_older_ones_stay(store: PlanStore, plan: MakePlan) -> None:
    for count in (1, 2, 3):
        store.publish(plan(count), 1000.0 + count, reason=f"{count} wanted", baseline=Baseline(0.9, 100.0))
    assert replicas(store) == 3
    assert [entry.version for entry in store.folder.history()] == [3, 2, 1]
    assert store.folder.version(2).plan == plan(2)
    newest = store.folder.history(most=1)[0]
    assert (newest.reason, newest.baseline) == ("3 wanted", Baseline(0.9, 100.0))
    assert [entry.version for entry in store.folder.history(before=3, most=1)] == [2]


def test_programs_that_follow_a_plan_file_follow_the_link(store: PlanStore, plan: MakePlan) -> None:
    for count in (4, 5):
        store.publish(plan(count), 1000.0)
        assert read_plan(store.folder.root / "plan.json") == plan(count)


def test_a_roll_back_needs_no_solve_and_goes_further_each_time_f116(store: PlanStore, plan: MakePlan) -> None:
    """F116: every plan has a recorded way back, and going it twice goes two plans back."""
    for count in (1, 2, 3):
        store.publish(plan(count), 1000.0)
    entry = store.roll_back(2000.0, "Goodput fell")
    assert (entry.kind, entry.restores, entry.plan_id) == (EntryKind.ROLLED_BACK, 2, "plan-2")
    assert replicas(store) == 2
    store.roll_back(2001.0, "still")
    assert replicas(store) == 1
    with pytest.raises(PlanFileError, match="no earlier plan"):
        store.roll_back(2002.0, "and again")
    assert replicas(store) == 1


def test_a_roll_back_passes_over_renewals_of_the_same_plan(store: PlanStore, plan: MakePlan) -> None:
    store.publish(plan(1), 1000.0)
    store.publish(plan(2), 1001.0)
    store.publish(plan(2), 1002.0, kind=EntryKind.RENEWED)
    assert store.roll_back(1003.0, "fell").restores == 1


def test_a_plan_that_is_put_back_is_valid_from_now_on(store: PlanStore, plan: MakePlan) -> None:
    store.publish(plan(1), 1000.0)
    store.publish(plan(2), 1001.0)
    store.roll_back(1767225600.0, "fell")
    found = store.current()
    assert found is not None
    assert (found.plan.valid_from, found.plan.valid_until) == ("2026-01-01T00:00:00Z", "2026-01-01T00:15:00Z")


def test_only_the_leader_publishes(store: PlanStore, plan: MakePlan, tmp_path: Path) -> None:
    other = PlanStore(tmp_path / "plans")
    assert not other.lead(1001.0), "the first one lives and its lease holds"
    with pytest.raises(NotLeaderError):
        other.publish(plan(9), 1001.0)
    assert store.current() is None


def test_a_paused_leader_is_refused_once_another_took_over(
    store: PlanStore, plan: MakePlan, tmp_path: Path
) -> None:
    """The old leader still holds its lock, as a paused process does; its lease ran out."""
    store.publish(plan(1), 1000.0)
    other = PlanStore(tmp_path / "plans")
    assert other.lead(1000.0 + store.leader.lease_s)
    assert other.leader.epoch == store.leader.epoch + 1
    other.publish(plan(2), 1200.0)
    with pytest.raises(NotLeaderError, match="epoch 2"):
        store.publish(plan(3), 1201.0)
    assert replicas(other) == 2
    epochs = [entry.epoch for entry in store.folder.history()]
    assert epochs == sorted(epochs, reverse=True)
    assert not store.lead(1202.0), "nor does it get the leadership back while the other one renews"


def test_a_leader_that_closed_is_followed_at_once(store: PlanStore, tmp_path: Path) -> None:
    store.leader.close()
    other = PlanStore(tmp_path / "plans")
    assert other.lead(1000.1)
    assert other.leader.epoch == 2


def test_a_damaged_leader_file_lets_nobody_publish(store: PlanStore, plan: MakePlan) -> None:
    (store.folder.root / "LEADER").write_text("{")
    with pytest.raises(NotLeaderError, match="damaged"):
        store.publish(plan(1), 1001.0)


@pytest.mark.parametrize("damage", ["", "{", '{"version": 1}', "\x00" * 50])
def test_a_damaged_pointer_falls_back_to_the_newest_whole_version(
    store: PlanStore, plan: MakePlan, damage: str
) -> None:
    store.publish(plan(1), 1000.0)
    store.publish(plan(2), 1001.0)
    (store.folder.root / "CURRENT").write_text(damage)
    assert replicas(store) == 2
    store.publish(plan(3), 1002.0)
    assert replicas(store) == 3


def test_a_damaged_plan_is_never_served(store: PlanStore, plan: MakePlan) -> None:
    store.publish(plan(1), 1000.0)
    entry = store.publish(plan(2), 1001.0)
    path = store.folder.root / "plans" / entry.file
    path.write_text(path.read_text().replace('"replicas": 2', '"replicas": 7'))
    with pytest.raises(PlanFileError, match="damaged"):
        store.folder.version(2)
    assert replicas(store) == 1


def test_files_of_a_version_that_was_never_published_are_not_read(store: PlanStore, plan: MakePlan) -> None:
    """A crash between the entry and the pointer."""
    first = store.publish(plan(1), 1000.0)
    orphan = replace(first, version=2, plan_id="plan-8", file="000000002-plan-8.json")
    (store.folder.root / "entries" / "000000002.json").write_text(entry_to_json(orphan))
    assert store.folder.versions() == [1]
    store.publish(plan(3), 1001.0)
    assert (replicas(store), store.folder.version(2).plan.plan_id) == (3, "plan-3")


def test_a_new_leader_mends_what_a_crash_left(store: PlanStore, plan: MakePlan, tmp_path: Path) -> None:
    store.publish(plan(1), 1000.0)
    old_link = (store.folder.root / "plan.json").readlink()
    store.publish(plan(2), 1001.0)
    (store.folder.root / "plan.json").unlink()
    (store.folder.root / "plan.json").symlink_to(old_link)
    (store.folder.root / "plans" / ".x.json.abc.part").write_text("half")
    store.leader.close()
    assert PlanStore(tmp_path / "plans").lead(1002.0)
    assert read_plan(store.folder.root / "plan.json") == plan(2)
    assert list(store.folder.root.rglob("*.part")) == []


def test_old_versions_go_but_never_the_way_back(tmp_path: Path, plan: MakePlan) -> None:
    store = PlanStore(tmp_path / "plans", keep_versions=3)
    store.lead(1000.0)
    store.publish(plan(1), 1000.0)
    for at in range(6):
        store.publish(plan(2), 1001.0 + at, kind=EntryKind.RENEWED)
    assert store.folder.versions() == [7, 6, 5, 1]
    assert store.roll_back(2000.0, "fell").restores == 1


def test_names_of_plans_cannot_leave_the_folder(store: PlanStore, plan: MakePlan) -> None:
    entry = store.publish(replace(plan(1), plan_id="a/../../b"), 1000.0)
    assert (store.folder.root / "plans" / entry.file).is_file()
    assert replicas(store) == 1


def test_entries_survive_the_file_and_unknown_keys_are_errors_f130() -> None:
    """F130: what is not understood is refused, not ignored."""
    entry = StoreEntry(3, 2, "plan-1", "000000003-plan-1.json", "0" * 64, 1.5, EntryKind.ROLLED_BACK, "why", 1)
    assert entry_from_json(entry_to_json(entry), "x") == entry
    with pytest.raises(PlanFileError):
        entry_from_json(entry_to_json(entry).replace('"reason"', '"raeson"'), "x")


def test_arguments_are_checked(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="keep_versions"):
        PlanStore(tmp_path, keep_versions=1)
    with pytest.raises(SettingError, match="lease_s"):
        PlanStore(tmp_path, lease_s=0.0)
    assert not StoreFolder(tmp_path / "none").exists()
