"""Which workers take part in a live run: each rule by hand. Generated histories are in test_live_histories.py."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import pytest

from orlomo.engines.live.actions import Action, Deny, End, Join, Leave, Redo, Say, Start, Stop
from orlomo.engines.live.events import (
    Add,
    Begin,
    Lost,
    NoRoom,
    NotStarted,
    Ready,
    Refused,
    Remove,
    Reported,
    Resize,
    Resume,
    Tick,
)
from orlomo.engines.live.membership import LONGEST_WAIT_SECONDS, LOSSES_IN_A_ROW, REFUSALS_IN_A_ROW, Membership

NONE_BUSY: frozenset[int] = frozenset()


def begun(workers: int) -> Membership:
    membership = Membership()
    membership.handle(Begin(workers), 0.0)
    return membership


def saved(membership: Membership, **settings: bool) -> Membership:
    return Membership.from_json(json.loads(json.dumps(membership.to_json())), **settings)


def without_words(actions: list[Action]) -> list[Action]:
    return [action for action in actions if not isinstance(action, Say)]


def lose(membership: Membership, worker: int, reason: str = "killed", traceback: str = "") -> list[Action]:
    return without_words(membership.handle(Lost(worker, reason, traceback), 0.0))


def test_it_needs_neither_torch_nor_a_clock() -> None:
    check = "import sys, orlomo.engines.live.membership; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_the_first_workers_take_part_from_the_start() -> None:
    membership = Membership()
    assert membership.handle(Begin(2), 0.0) == [Start(0, 0), Start(1, 1)]
    assert membership.takes_part(0)
    assert membership.handle(Ready(0), 0.0) == []
    assert membership.next_due == float("inf")


def test_a_lost_worker_is_followed_by_another_in_its_rank() -> None:
    membership = begun(3)
    assert membership.handle(Lost(1, "killed by SIGKILL", "Traceback"), 5.0) == [
        Say("worker 1 is lost: killed by SIGKILL", "Traceback"),
        Stop(1),
        Leave(1, "crash"),
    ]
    assert membership.next_due == 5.0
    assert membership.handle(Tick(), 5.0) == [Start(3, 1)]
    assert not membership.takes_part(3)
    assert membership.handle(Ready(3), 5.0) == [Join(3)]
    assert membership.takes_part(3)
    assert membership.lost == 1


def test_the_waits_grow_until_the_rank_is_given_up() -> None:
    membership = begun(2)
    waits, now, worker = [], 0.0, 0
    for _ in range(LOSSES_IN_A_ROW - 1):
        membership.handle(Lost(worker, "killed"), now)
        waits.append(membership.next_due - now)
        assert membership.handle(Tick(), membership.next_due - 1e-6) == []
        now = membership.next_due
        [start] = membership.handle(Tick(), now)
        assert isinstance(start, Start)
        assert start.rank == 0
        worker = start.worker
    assert waits[0] == 0.0
    assert all(later > 1.5 * earlier for earlier, later in itertools.pairwise(waits[1:]))
    assert max(waits) <= LONGEST_WAIT_SECONDS
    *_, said = membership.handle(Lost(worker, "killed"), now)
    assert said == Say("10 workers in a row were lost in rank 0: continuing with one rank less")
    assert [rank.worker for rank in membership.ranks] == [1]


def test_no_wait_is_longer_than_the_longest() -> None:
    membership = begun(1)
    membership.ranks[0].losses = LOSSES_IN_A_ROW - 2
    membership.handle(Lost(0, "killed"), 7.0)
    assert membership.next_due == pytest.approx(7.0 + min(LONGEST_WAIT_SECONDS, 0.1 * 2 ** (LOSSES_IN_A_ROW - 2)))
    assert membership.next_due <= 7.0 + LONGEST_WAIT_SECONDS


def test_the_last_rank_that_is_given_up_ends_the_run() -> None:
    membership = begun(1)
    membership.ranks[0].losses = LOSSES_IN_A_ROW - 1
    assert lose(membership, 0)[-1] == End("no worker is left; the last was lost: killed")


def test_a_rank_beside_one_that_is_leaving_is_the_last() -> None:
    """Otherwise no worker would be left once the leaving one has reported, and the run would wait for ever."""
    membership = begun(2)
    membership.handle(Remove(1, is_busy=True), 0.0)
    membership.ranks[0].losses = LOSSES_IN_A_ROW - 1
    assert lose(membership, 0)[-1] == End("no worker is left; the last was lost: killed")


def test_a_report_ends_a_row_of_losses() -> None:
    membership = begun(1)
    lose(membership, 0)
    membership.handle(Tick(), 0.0)
    membership.handle(Reported(1), 0.0)
    lose(membership, 1)
    assert membership.next_due == 0.0  # as after a first loss


def test_a_refused_report_is_computed_again_and_a_worker_refused_in_a_row_is_replaced() -> None:
    membership = begun(2)
    for _ in range(REFUSALS_IN_A_ROW - 1):
        said, redo = membership.handle(Refused(0, "it is not finite"), 0.0)
        assert said == Say("report refused: it is not finite; worker 0 computes the round again")
        assert redo == Redo(0)
    said, *actions = membership.handle(Refused(0, "it is not finite"), 0.0)
    assert said == Say("worker 0 is lost: 3 reports in a row refused, the last because it is not finite")
    assert actions == [Stop(0), Leave(0, "crash")]
    assert (membership.refused, membership.lost) == (REFUSALS_IN_A_ROW, 1)


def test_an_accepted_report_ends_a_row_of_refusals() -> None:
    membership = begun(2)
    for _ in range(5):
        assert membership.handle(Refused(0, "bad"), 0.0)[-1] == Redo(0)
        membership.handle(Reported(0), 0.0)
    assert membership.lost == 0


def test_workers_that_all_raise_the_same_end_the_run() -> None:
    membership = begun(2)
    assert not any(isinstance(action, End) for action in lose(membership, 0, "ValueError: no", "Traceback"))
    assert lose(membership, 1, "ValueError: no", "Traceback")[-1] == End("every worker failed: ValueError: no")


@pytest.mark.parametrize(("reason", "traceback"), [("KeyError: 3", "Traceback"), ("ValueError: no", "")])
def test_workers_lost_in_different_ways_do_not_end_it(reason: str, traceback: str) -> None:
    """Another error, or none: a worker that was killed."""
    membership = begun(2)
    lose(membership, 0, "ValueError: no", "Traceback")
    assert lose(membership, 1, reason, traceback) == [Stop(1), Leave(1, "crash")]


def test_trouble_in_one_rank_does_not_end_it() -> None:
    membership = begun(2)
    for worker in (0, 2, 3, 4):
        assert lose(membership, worker, "ValueError: no", "Traceback") == [
            Stop(worker),
            *([Leave(worker, "crash")] if worker == 0 else []),  # the others never took part
        ]
        membership.handle(Tick(), 100.0)


def test_one_loss_of_a_lone_worker_is_no_pattern_two_are() -> None:
    membership = begun(1)
    assert lose(membership, 0, "ValueError: no", "Traceback") == [Stop(0), Leave(0, "crash")]
    membership.handle(Tick(), 0.0)
    assert lose(membership, 1, "ValueError: no", "Traceback")[-1] == End("every worker failed: ValueError: no")


def test_workers_that_are_all_refused_mean_divergence() -> None:
    membership = begun(2)
    for worker, _ in itertools.product((0, 1), range(REFUSALS_IN_A_ROW)):
        actions = membership.handle(Refused(worker, "it is not finite"), 0.0)
    end = actions[-1]
    assert isinstance(end, End)
    assert end.diverged
    assert end.reason.startswith("the run diverged: 3 reports in a row refused")
    assert end.reason.endswith("lower the learning rate")


def test_reports_that_are_refused_for_another_reason_do_not_mean_divergence() -> None:
    membership = begun(2)
    for worker, _ in itertools.product((0, 1), range(REFUSALS_IN_A_ROW)):
        actions = membership.handle(Refused(worker, "it has no delta_params", finite=True), 0.0)
    assert not any(isinstance(action, End) for action in actions)


def test_a_worker_leaves_after_its_report_or_at_once_if_it_has_none_to_make() -> None:
    membership = begun(3)
    assert membership.handle(Remove(0, is_busy=False), 0.0) == [Stop(0), Leave(0, "leave")]
    assert membership.handle(Remove(1, is_busy=True), 0.0) == []
    assert membership.is_leaving(1)
    assert membership.handle(Reported(1), 0.0) == [Stop(1), Leave(1, "leave")]
    assert [rank.worker for rank in membership.ranks] == [2]


def test_a_worker_that_is_lost_while_it_leaves_is_not_replaced() -> None:
    membership = begun(2)
    membership.handle(Remove(0, is_busy=True), 0.0)
    assert lose(membership, 0) == [Stop(0), Leave(0, "crash")]
    assert membership.next_due == float("inf")


def test_the_last_worker_cannot_be_removed() -> None:
    membership = begun(2)
    membership.handle(Remove(0, is_busy=True), 0.0)
    denied = [Deny("the last worker cannot be removed: stop the run with Ctrl-C")]
    assert membership.handle(Remove(1, is_busy=True), 0.0) == denied
    membership.handle(Add(), 0.0)  # it is started, but does not take part yet
    assert membership.handle(Remove(1, is_busy=True), 0.0) == denied
    assert membership.handle(Ready(2), 0.0) == [Join(2)]
    assert membership.handle(Remove(1, is_busy=True), 0.0) == []


def test_an_unknown_worker_cannot_be_removed() -> None:
    membership = begun(2)
    lose(membership, 0)
    assert membership.handle(Remove(0, is_busy=False), 0.0) == [Deny("there is no worker 0: there are [1]")]


def test_an_added_worker_gets_the_lowest_rank_that_is_free() -> None:
    membership = begun(3)
    membership.handle(Remove(1, is_busy=False), 0.0)
    assert membership.handle(Add(), 0.0) == [Start(3, 1)]
    assert membership.handle(Add(), 0.0) == [Start(4, 3)]


def test_a_method_for_one_worker_gets_no_second() -> None:
    membership = Membership(limit=1)
    membership.handle(Begin(1), 0.0)
    for event in (Add(), Resize(2, NONE_BUSY)):
        assert membership.handle(event, 0.0) == [Deny("the method of this run runs on 1 worker, not 2")]


def test_a_worker_that_cannot_be_started_is_tried_again_if_it_follows_a_lost_one() -> None:
    membership = begun(1)
    lose(membership, 0)
    membership.handle(Tick(), 0.0)
    assert membership.handle(NotStarted(1, "no memory"), 0.0) == [Say("no memory")]
    assert membership.next_due == pytest.approx(0.2)
    assert membership.handle(Tick(), 0.3) == [Start(2, 0)]
    assert membership.lost == 1  # one that was never there cannot be lost


def test_a_worker_that_cannot_be_started_is_denied_if_it_was_asked_for() -> None:
    membership = begun(1)
    membership.handle(Add(), 0.0)
    assert membership.handle(NotStarted(1, "no memory"), 0.0) == [Deny("no memory")]
    assert [rank.worker for rank in membership.ranks] == [0]


def test_workers_without_room_wait_under_their_ids() -> None:
    membership = begun(3)
    said, *actions = membership.handle(NoRoom((1, 2)), 0.0)
    assert said == Say("2 workers are not ready yet: continuing without; they join when they are")
    assert actions == [Leave(1, "leave"), Leave(2, "leave")]
    assert membership.handle(NoRoom((1, 2)), 0.0) == []
    assert membership.handle(Ready(2), 0.0) == [Join(2)]
    assert lose(membership, 1) == [Stop(1)]  # it took no part: the server need not know
    assert membership.handle(NoRoom((2,)), 0.0)[0] == Say(
        "1 worker is not ready yet: continuing without; it joins when it is"
    )


def test_of_those_without_room_the_idle_leave_first() -> None:
    """When the last that holds an assignment leaves, the barrier closes and those that wait at it get another."""
    actions = without_words(begun(3).handle(NoRoom((0, 1, 2), busy=frozenset({0, 2})), 0.0))
    assert actions == [Leave(1, "leave"), Leave(0, "leave"), Leave(2, "leave")]


def test_a_worker_without_room_that_was_to_leave_goes() -> None:
    membership = begun(2)
    membership.handle(Remove(1, is_busy=True), 0.0)
    assert without_words(membership.handle(NoRoom((1,)), 0.0)) == [Stop(1), Leave(1, "leave")]
    assert len(membership) == 1


def test_events_of_a_worker_that_was_stopped_meanwhile_do_nothing() -> None:
    membership = begun(2)
    lose(membership, 0)
    for event in (Ready(0), Reported(0), Refused(0, "late"), Lost(0, "again"), NotStarted(0, "late"), NoRoom((0,))):
        assert membership.handle(event, 0.0) == []
    assert (membership.lost, membership.refused) == (1, 0)


def test_the_number_of_workers_changes_from_the_highest_rank() -> None:
    membership = begun(4)
    lose(membership, 3)
    membership.handle(Remove(0, is_busy=True), 0.0)
    assert membership.handle(Resize(1, frozenset({0, 1})), 0.0) == [Stop(2), Leave(2, "leave")]
    assert [(rank.worker, rank.is_leaving) for rank in membership.ranks] == [(0, True), (1, False)]
    assert membership.handle(Resize(3, NONE_BUSY), 0.0) == [Start(4, 2), Start(5, 3)]
    assert membership.handle(Resize(0, NONE_BUSY), 0.0) == [Deny("workers must be at least 1, not 0")]


def test_a_resumed_run_starts_its_workers_under_their_ids_and_forgets_losses() -> None:
    membership = begun(3)
    membership.handle(NoRoom((2,)), 0.0)
    membership.handle(Remove(1, is_busy=True), 0.0)
    membership.ranks[0].losses = LOSSES_IN_A_ROW - 2
    lose(membership, 0)
    again = saved(membership)
    assert again == membership
    assert again.handle(Resume(frozenset({1})), 50.0) == [Start(1, 1), Start(2, 2)]
    assert again.handle(Ready(2), 50.0) == [Join(2)]
    assert again.handle(Ready(1), 50.0) == []  # it took part all the time
    assert again.handle(Reported(1), 50.0) == [Stop(1), Leave(1, "leave")]
    assert again.handle(Tick(), 50.0) == [Start(3, 0)]
    assert lose(again, 3) == [Stop(3)]
    assert again.lost == 2


def test_an_empty_rank_that_cannot_be_filled_after_a_resume_is_tried_again() -> None:
    membership = begun(2)
    lose(membership, 0)
    again = saved(membership)
    again.handle(Resume(NONE_BUSY), 9.0)
    assert again.handle(Tick(), 9.0) == [Start(2, 0)]
    assert again.handle(NotStarted(2, "no memory"), 9.0) == [Say("no memory")]
    assert again.handle(Tick(), 9.0) == [Start(3, 0)]


def test_workers_that_keep_state_get_new_ids_in_a_resumed_run() -> None:
    """Their state is gone; a worker with the old id would differ from its replay."""
    membership = begun(4)
    membership.handle(NoRoom((3,)), 0.0)
    membership.handle(Remove(2, is_busy=True), 0.0)
    again = saved(membership, keeps_worker_state=True)
    assert again.handle(Resume(frozenset({0, 2})), 0.0) == [
        Leave(1, "crash"),  # it holds nothing: it goes before the barrier can close
        Start(4, 1),
        Start(5, 3),  # took no part: there is nothing to record
        Leave(0, "crash"),
        Start(6, 0),
        Leave(2, "crash"),  # was to leave: not replaced
    ]
    assert again.handle(Ready(4), 0.0) == [Join(4)]
    assert not again.takes_part(0)
    assert [rank.number for rank in again.ranks] == [0, 1, 3]
