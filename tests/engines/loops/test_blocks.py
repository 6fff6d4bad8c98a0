"""Leases: every sample is acknowledged exactly once, whatever happens to workers, and no order of events blocks."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orlomo.engines.loops.blocks import Blocks
from orlomo.errors import ConfigError
from orlomo.loop.messages import Lease

WORKERS = 4
ACTIONS = st.tuples(
    st.sampled_from(["lease", "fold", "part", "nothing", "crash", "resume"]),
    st.integers(0, WORKERS - 1),
    st.integers(0, 3),
)


class Watched:
    """Blocks, and what was acknowledged, counted by the test itself."""

    def __init__(self, blocks: Blocks):
        self.blocks = blocks
        self.acknowledged: Counter[tuple[int, int]] = Counter()
        self.leases: dict[int, tuple[Lease, ...]] = {}

    def lease(self, worker: int, ahead: int) -> None:
        before = self.leases.get(worker, ())
        found = self.blocks.lease(worker, ahead)
        # What a worker has begun to load stays where it is, or is taken from the end.
        kept = found[: len(before)]
        assert kept == before[: len(kept)]
        assert kept == before or len(kept) == 1
        assert len(found) <= max(len(before), 1 + ahead)
        self.leases[worker] = found

    def fold(self, worker: int, stop: int | None) -> None:
        first, *rest = self.leases[worker]
        used = None if stop is None else Lease(first.epoch, first.first, min(stop, first.stop))
        self.blocks.fold(worker, used)
        if used is not None:
            self.acknowledged.update((used.epoch, position) for position in range(used.first, used.stop))
        self.leases[worker] = tuple(rest)

    def give_back(self, worker: int) -> None:
        self.blocks.give_back(worker)
        self.leases.pop(worker, None)

    def resume(self) -> None:
        values = json.loads(json.dumps(self.blocks.to_json()))
        self.blocks = Blocks.from_json(values, workers=WORKERS)
        self.leases.clear()

    def act(self, action: str, worker: int, number: int) -> None:
        if action == "lease":
            self.lease(worker, number)
        elif action == "crash":
            self.give_back(worker)
        elif action == "resume":
            self.resume()
        elif self.leases.get(worker):
            first = self.leases[worker][0]
            stops = {"fold": first.stop, "part": first.first + number, "nothing": None}
            self.fold(worker, stops[action])

    def check(self) -> None:
        held = [lease for leases in self.leases.values() for lease in leases]
        for lease in held:
            assert 0 < lease.samples <= self.blocks.block
            assert 0 <= lease.first < lease.stop <= self.blocks.size
        positions = Counter((lease.epoch, n) for lease in held for n in range(lease.first, lease.stop))
        assert not positions or max(positions.values()) == 1
        assert not positions.keys() & self.acknowledged.keys()
        assert not self.acknowledged or max(self.acknowledged.values()) == 1
        assert self.blocks.samples_done == sum(self.acknowledged.values())
        assert self.blocks.complete == (self.blocks.samples_done == self.blocks.samples)


@settings(max_examples=150, deadline=None)
@given(
    size=st.integers(1, 12),
    block=st.integers(1, 7),
    samples=st.integers(1, 40),
    actions=st.lists(ACTIONS, max_size=60),
    order=st.permutations(range(WORKERS)),
    ahead=st.integers(0, 3),
)
def test_every_sample_is_acknowledged_exactly_once(
    size: int, block: int, samples: int, actions: list[tuple[str, int, int]], order: list[int], ahead: int
) -> None:
    watched = Watched(Blocks(size, block, samples, workers=WORKERS))
    for action in actions:
        watched.act(*action)
        watched.check()
    for _ in range(2 * samples + 2):  # then all workers go on, in any order: the run comes to its end
        for worker in order:
            watched.lease(worker, ahead)
            if watched.leases[worker]:
                watched.fold(worker, samples)
            watched.check()
    assert watched.blocks.complete
    assert watched.acknowledged == Counter({divmod(position, size): 1 for position in range(samples)})


@given(size=st.integers(1, 30), block=st.integers(1, 12), samples=st.integers(1, 90), taken=st.integers(0, 20))
def test_available_says_how_many_leases_there_will_be(size: int, block: int, samples: int, taken: int) -> None:
    blocks = Blocks(size, block, samples)
    for worker in range(taken):
        blocks.lease(worker)
    expected, worker = blocks.available, taken
    while blocks.lease(worker):
        worker += 1
    assert worker - taken == expected


def test_returned_blocks_go_out_first_and_in_order() -> None:
    blocks = Blocks(size=100, block=10, samples=200)
    assert blocks.lease(0, ahead=2) == (Lease(0, 0, 10), Lease(0, 10, 20), Lease(0, 20, 30))
    assert blocks.lease(1) == (Lease(0, 30, 40),)
    blocks.give_back(1)
    blocks.fold(0, Lease(0, 0, 4))
    blocks.give_back(0)
    assert [blocks.lease(worker)[0].first for worker in range(2, 7)] == [4, 10, 20, 30, 40]
    assert blocks.lease(2, ahead=1)[1] == Lease(0, 50, 60)


def test_an_epoch_ends_with_a_shorter_block_and_so_does_the_run() -> None:
    blocks = Blocks(size=10, block=4, samples=15)
    found = [blocks.lease(worker)[0] for worker in range(5)]
    assert found == [Lease(0, 0, 4), Lease(0, 4, 8), Lease(0, 8, 10), Lease(1, 0, 4), Lease(1, 4, 5)]
    assert blocks.epoch == 1
    assert blocks.lease(5) == ()
    assert not blocks.complete


def test_nothing_is_leased_ahead_when_few_blocks_are_left() -> None:
    blocks = Blocks(size=8, block=1, samples=8, workers=2)
    assert len(blocks.lease(0, ahead=2)) == 3
    assert len(blocks.lease(1, ahead=2)) == 1  # 5 are left, less than the 6 that both could hold
    assert blocks.available == 4


def test_leases_ahead_are_given_to_workers_without_any_at_the_end() -> None:
    blocks = Blocks(size=12, block=1, samples=12, workers=2)
    slow = blocks.lease(0, ahead=3)
    assert len(slow) == 4
    while lease := blocks.lease(1):  # the fast one uses all others
        blocks.fold(1, lease[0])
    blocks.fold(0, slow[0])
    assert blocks.lease(0, ahead=3) == slow[1:2]
    assert blocks.lease(1, ahead=3) == slow[2:3]
    assert blocks.available == 1


def test_the_only_worker_keeps_its_leases() -> None:
    blocks = Blocks(size=4, block=1, samples=4)
    held = blocks.lease(0, ahead=3)
    assert len(held) == 4
    for number in range(4):
        assert blocks.lease(0, ahead=3) == held[number:]
        blocks.fold(0, held[number])
    assert blocks.complete


def test_the_epoch_is_that_of_the_newest_block() -> None:
    blocks = Blocks(size=4, block=2, samples=8)
    assert blocks.epoch == 0
    for worker, epoch in enumerate([0, 0, 1, 1]):
        blocks.lease(worker)
        assert blocks.epoch == epoch
    blocks.give_back(0)
    assert blocks.lease(9) == (Lease(0, 0, 2),)
    assert Blocks.from_json(blocks.to_json()).epoch == blocks.epoch == 1


@pytest.mark.parametrize("used", [Lease(0, 1, 4), Lease(1, 0, 4), Lease(0, 0, 5), Lease(0, 0, -1), Lease(0, 4, 8)])
def test_a_report_on_other_samples_is_refused(used: Lease) -> None:
    blocks = Blocks(size=10, block=4, samples=20)
    blocks.lease(0, ahead=1)
    with pytest.raises(ConfigError, match=r"worker 0 reports on samples .* not the beginning of it"):
        blocks.fold(0, used)
    assert blocks.held(0) == (Lease(0, 0, 4), Lease(0, 4, 8))


def test_a_report_without_a_lease_is_refused() -> None:
    blocks = Blocks(size=10, block=4, samples=20)
    with pytest.raises(ConfigError, match="holds no lease"):
        blocks.fold(0, Lease(0, 0, 4))
    blocks.give_back(0)  # nothing to give back
    assert blocks.available == 6


@pytest.mark.parametrize("wrong", [{"size": 0}, {"block": 0}, {"samples": -1}])
def test_sizes_must_be_positive(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="at least one sample"):
        Blocks(**{"size": 1, "block": 1, "samples": 1, **wrong})
