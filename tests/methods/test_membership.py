"""Workers that come and go: groups stay ordered, closed forms hold, barriers fill."""

from __future__ import annotations

import pytest
import torch
from arrivals import Drive, close
from hypothesis import given, settings
from hypothesis import strategies as st

import orlomo

OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["report"] * 6 + ["join", "leave", "return"]), st.integers(0, 1000)), max_size=80
)


def elastic(drive: Drive, operations: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Carry out those operations that are possible; returns them with the worker each one fell on."""
    done, fresh = [], drive.workers
    gone: set[int] = set()
    for name, pick in operations:
        present = sorted(drive.server.ledger.outstanding)
        if name == "report" and present:
            worker = present[pick % len(present)]
            drive.arrive(worker)
        elif name == "leave" and drive.server.ledger.present:
            everyone = sorted({*present, *getattr(drive.server.ledger, "waiting", set())})
            worker = everyone[pick % len(everyone)]
            drive.leave(worker)
            gone.add(worker)
        elif name == "join" and drive.method.max_workers is None:
            worker, fresh = fresh, fresh + 1
            drive.join(worker)
        elif name == "return" and gone and drive.method.max_workers is None:
            worker = sorted(gone)[pick % len(gone)]
            gone.discard(worker)
            drive.join(worker)
        else:
            continue
        done.append((name, worker))
    return done


@settings(max_examples=80)
@given(st.integers(1, 12), OPERATIONS, st.sampled_from([0.5, 0.9]))
def test_closed_form_and_y_hold_while_workers_come_and_go(
    workers: int, operations: list[tuple[str, int]], beta: float
) -> None:
    drive = Drive(orlomo.OrLoMo(momentum=beta, local_steps=2), workers)
    done = elastic(drive, operations)

    # The rule, counted again by hand: each assigned vector has a group; a group closes when as many
    # vectors have been assigned as there are present workers.
    present, group, assigned = set(range(workers)), 0, workers
    label = dict.fromkeys(range(workers), 0)
    u, w = torch.zeros(3, dtype=torch.float64), drive.initial.clone()
    items: list[tuple[int, torch.Tensor, torch.Tensor]] = []
    received = iter(drive.received)
    for name, worker in done:
        if name == "leave":
            present.discard(worker)
            continue
        if name == "report":
            item = next(received)
            items.append((label[worker], item.fold.eta * item.delta_u, item.fold.eta * item.delta_w))
            assert item.fold.eta == (1 / len(present) if item.fold.delay <= 2 * len(present) else 1 / item.fold.delay)
            u = sum((beta ** (group - g) * du for g, du, _ in items), torch.zeros(3, dtype=torch.float64))
            reaches = [sum(beta**p for p in range(1, group - g + 1)) for g, _, _ in items]
            w = drive.initial - sum(dw + r * du for r, (_, du, dw) in zip(reaches, items, strict=True))
            assert close(item.momentum, u)
            assert close(item.params, w)
        else:
            present.add(worker)
        if assigned >= len(present):
            group, assigned = group + 1, 0
        assigned += 1
        label[worker] = group


@settings(max_examples=60)
@given(st.sampled_from(["prsgdm", "local-sgd", "msgd"]), st.integers(1, 8), OPERATIONS)
def test_a_barrier_is_the_mean_of_what_reached_it_and_always_fills(
    name: str, workers: int, operations: list[tuple[str, int]]
) -> None:
    method = orlomo.method(name, local_steps=2)
    drive = Drive(method, min(workers, method.max_workers or workers))
    elastic(drive, operations)
    ledger = drive.server.ledger
    while ledger.outstanding:  # all that is still owed arrives: the barrier must close
        before = drive.server.iteration
        for worker in sorted(ledger.outstanding):
            drive.arrive(worker)
        assert drive.server.iteration == before + 1
        assert ledger.settled
        break
    # Every report is in the parameters exactly once, as a mean over its barrier.
    expected = drive.initial.clone()
    barriers: dict[int, list[torch.Tensor]] = {}
    for item in drive.received:
        barriers.setdefault(item.fold.iteration, []).append(item.delta_w)
    for deltas in barriers.values():
        expected -= torch.stack(deltas).mean(dim=0)
    assert close(drive.server.params, expected)


def test_a_barrier_does_not_wait_for_a_worker_that_left() -> None:
    drive = Drive(orlomo.PRSGDm(local_steps=1), workers=3)
    drive.arrive(0)
    drive.arrive(1)
    assert drive.server.iteration == 0
    assignments = drive.server.leave(2)
    assert drive.server.iteration == 1
    assert [assignment.worker for assignment in assignments] == [0, 1]


def test_a_worker_that_joins_a_barrier_waits_for_the_next() -> None:
    drive = Drive(orlomo.LocalSGD(local_steps=1), workers=2)
    drive.arrive(0)
    assert drive.server.join(7) == []
    drive.arrive(1)
    assert sorted(drive.held) == [0, 1, 7]


def test_everyone_leaves_and_someone_comes() -> None:
    for name in ("prsgdm", "orlomo"):
        drive = Drive(orlomo.method(name, local_steps=1), workers=2)
        drive.arrive(0)
        drive.leave(0)
        drive.leave(1)
        params = drive.server.params.clone()
        [assignment] = drive.server.join(1)
        assert close(assignment.params, params)
        assert assignment.round == 1  # its round 0 was lost; it does not use its samples again


def test_wrong_comings_and_goings_are_refused() -> None:
    server = orlomo.OrLoMo().server(torch.zeros(2), workers=2)
    server.start()
    with pytest.raises(orlomo.OrlomoError, match="worker 1 cannot join: it is already present"):
        server.join(1)
    with pytest.raises(orlomo.OrlomoError, match="worker 5 cannot leave: it is not present"):
        server.leave(5)
    with pytest.raises(orlomo.OrlomoError, match="started already"):
        server.start()
    alone = orlomo.MSGD().server(torch.zeros(2), workers=1)
    alone.start()
    with pytest.raises(orlomo.OrlomoError, match="runs on 1 worker"):
        alone.join(1)
