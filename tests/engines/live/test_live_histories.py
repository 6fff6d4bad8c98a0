"""Generated histories of live runs (see histories.py): a sample of them, and mistakes that they must find."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from histories import OLD, History, run_all
from orlomo.engines.live.actions import Leave, Start
from orlomo.engines.live.crew import Arrived, CrewEvent
from orlomo.engines.live.loop import Live
from orlomo.engines.live.membership import Membership
from orlomo.engines.loops.blocks import Blocks
from orlomo.engines.loops.bookkeeping import Bookkeeping
from orlomo.engines.loops.live import LiveLoop
from orlomo.engines.session import Session
from orlomo.methods.ledger import AsynchronousLedger, BarrierLedger, Ledger
from small import NAMES

HISTORIES = 200
"""The same ones every time; `make chaos` has 10,000."""


def test_generated_histories() -> None:
    seen = run_all(range(HISTORIES))
    kinds = {kind.__name__ for kind in get_args(CrewEvent)}
    acts = {"stop", "kill", "end", "given up", "no start", "old_report", "bad_report", "by_hand", "idle", "enough"}
    rare = {what for what in {*kinds, *acts} if seen[what] < 10}
    assert not rare, seen  # all of it happens, and often
    assert len([name for name, count in seen.items() if count and name in {*NAMES, "Smoothed"}]) == len(NAMES)


@pytest.mark.parametrize("name", ["orlomo", "prsgdm"])
def test_a_report_that_arrives_twice_changes_nothing(name: str) -> None:
    """At a barrier its worker holds nothing; else it holds another round, which it must not be sent again."""
    history = next(
        one for one in (History(seed, name) for seed in range(100)) if one.by_slots and one.config.workers > 2
    )
    history.failing_starts = 0.0
    script = [lambda: [history.arrive(0)], lambda: [Arrived(history.past[0], 0.0, OLD, 0.0)]]
    usual = history.look

    def look(seconds: float) -> list[CrewEvent]:
        history.check()
        if script:
            return script.pop(0)()
        history.crew._look, history.peace, history.lonely = usual, True, False
        return []

    history.look = look  # type: ignore[method-assign]
    history.run()


@pytest.mark.parametrize(
    ("kind", "name", "mistake"),
    [
        (Membership, "_start", lambda self, rank: Start(rank.number, rank.number)),  # ids are used again
        (Membership, "_empty", lambda self, rank, kind: []),  # no worker is stopped
        (Membership, "_count_loss", lambda self, rank, cause, now: self.ranks.remove(rank) or []),  # none follows
        (Membership, "_let_go", lambda self, rank, kind="leave": self._empty(rank, kind)),  # the rank stays
        (Membership, "_without", lambda self, ranks: [Leave(rank.worker, "leave") for rank in ranks]),  # and takes part
        (Ledger, "check", lambda self, worker, index, round: None),  # whatever comes is folded in
        (Ledger, "_set_down", lambda self, worker: self.outstanding.pop(worker)),  # rounds are counted from 0 again
        (AsynchronousLedger, "leave", lambda self, worker: self.join(worker)),
        (AsynchronousLedger, "load_state_dict", lambda self, state: self._load_shared_state(state)),  # groups are lost
        (BarrierLedger, "load_state_dict", lambda self, state: self._load_shared_state(state)),  # as is who waits
        (Live, "_record", lambda self, kind, iteration, worker: None),  # who comes and goes is not written down
        (Live, "_hand", lambda self, assignments: [self._crew.send(one) for one in assignments]),  # nor who has what
        (Session, "load", lambda self, saved: []),
        (LiveLoop, "_wake", lambda self: None),  # who waits for samples is forgotten
        (Bookkeeping, "give_back", lambda self, worker: None),  # what a lost worker had is lost, too
        (Blocks, "fold", lambda self, worker, used: self.give_back(worker)),  # samples are used twice
    ],
)
def test_the_histories_find_mistakes(kind: type, name: str, mistake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, name, mistake)
    with pytest.raises(Exception):  # noqa: B017  (most are assertions, others show before one is reached)
        run_all(range(100))
