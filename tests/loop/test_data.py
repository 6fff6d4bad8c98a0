"""A user's DataLoader driven by leases: what is leased is delivered once and in order, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from orlomo.errors import ConfigError
from orlomo.loop.data import LeasedIds, LeasedLoader, LeaseQueue
from orlomo.loop.messages import Lease

Batch = tuple[list[int], Lease, int]


class Numbers(Dataset[tuple[int, int, int]]):
    """Sample n is n, with the process that loaded it and a number drawn there."""

    def __init__(self, size: int):
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[int, int, int]:
        assert type(index) is int
        return index, os.getpid(), int(torch.randint(2**40, ()))


def numbers(size: int = 20, batch_size: int = 3, **settings: Any) -> DataLoader[Any]:
    return DataLoader(Numbers(size), batch_size=batch_size, **settings)


def delivered(batches: Iterator[tuple[Any, Lease, int]]) -> list[Batch]:
    return [(batch[0].tolist(), lease, stop) for batch, lease, stop in batches]


def blocks(size: int, block: int, epoch: int = 0) -> list[Lease]:
    return [Lease(epoch, first, min(first + block, size)) for first in range(0, size, block)]


LOADERS: dict[str, dict[str, Any]] = {
    "no processes": {},
    "two processes": {"num_workers": 2},
    "persistent": {"num_workers": 2, "persistent_workers": True},
}
each_loader = pytest.mark.parametrize("settings", LOADERS.values(), ids=list(LOADERS))


@each_loader
def test_every_leased_sample_is_delivered_once_and_in_order(settings: dict[str, Any]) -> None:
    leased = LeasedLoader(numbers(**settings))
    leased.queue.hold([Lease(0, 6, 12), Lease(0, 16, 20), Lease(1, 0, 6)])
    first, second = Lease(0, 6, 12), Lease(0, 16, 20)
    assert delivered(leased.iterate(0)) == [
        ([6, 7, 8], first, 9),
        ([9, 10, 11], first, 12),
        ([16, 17, 18], second, 19),
        ([19], second, 20),
    ]
    assert delivered(leased.iterate(0)) == []  # epoch 1 has not begun
    assert [samples for samples, _, _ in delivered(leased.iterate(1))] == [[0, 1, 2], [3, 4, 5]]


@each_loader
@pytest.mark.parametrize("known", [1, 2, 4])
def test_leases_may_come_while_iterating(settings: dict[str, Any], known: int) -> None:
    """As they do at the end of each round; with few known ahead, the loader's processes run out of work each time."""
    leased = LeasedLoader(numbers(size=40, **settings))
    todo = blocks(40, 6)
    leased.queue.hold(todo[:known])
    seen: list[int] = []
    processes = set()
    for batch, lease, stop in leased.iterate(0):
        seen += batch[0].tolist()
        processes |= set(batch[1].tolist())
        if stop == lease.stop:
            number = todo.index(lease) + 1
            leased.queue.hold(todo[number : number + known])
    assert seen == list(range(40))
    assert len(processes) <= max(1, settings.get("num_workers", 0))  # not new ones for each pass


@each_loader
def test_after_a_break_comes_the_rest_of_the_block(settings: dict[str, Any]) -> None:
    leased = LeasedLoader(numbers(**settings))
    leased.queue.hold(blocks(20, 12))
    seen: list[int] = []
    for count in (1, 2, 4):
        for batch, _, _ in islice(leased.iterate(0), count):
            seen += batch[0].tolist()
    assert seen == list(range(20))


@each_loader
def test_leases_that_change_are_followed_and_not_what_was_loaded_ahead(settings: dict[str, Any]) -> None:
    """A refused report: the server gives the same block again, before those that were loaded already."""
    leased = LeasedLoader(numbers(size=30, **settings))
    a, b, c, d = Lease(0, 0, 6), Lease(0, 6, 12), Lease(0, 12, 18), Lease(0, 18, 24)
    leased.queue.hold([a, b, c])
    batches = leased.iterate(0)
    assert [stop for _, _, stop in islice(batches, 2)] == [3, 6]
    leased.queue.hold([a, b, c])
    assert [stop for _, _, stop in islice(batches, 4)] == [3, 6, 9, 12]
    leased.queue.hold([d, c])  # and one in between
    assert delivered(batches) == [
        ([18, 19, 20], d, 21),
        ([21, 22, 23], d, 24),
        ([12, 13, 14], c, 15),
        ([15, 16, 17], c, 18),
    ]


@pytest.mark.parametrize("settings", list(LOADERS.values())[:2], ids=list(LOADERS)[:2])
def test_the_order_is_a_permutation_of_seed_and_epoch(settings: dict[str, Any]) -> None:
    def order(seed: int, epoch: int, block: int) -> list[int]:
        leased = LeasedLoader(numbers(shuffle=True, **settings), seed=seed)
        leased.queue.hold(blocks(20, block, epoch))
        return [sample for samples, _, _ in delivered(leased.iterate(epoch)) for sample in samples]

    found = order(0, 1, 6)
    assert sorted(found) == list(range(20)) != found
    assert order(0, 1, 9) == found  # whoever has which block
    assert order(0, 2, 6) != found != order(1, 1, 6)


@each_loader
def test_the_same_leases_give_the_same_numbers(settings: dict[str, Any]) -> None:
    """Also what is drawn while samples are loaded, with leases that come while iterating."""

    def draws() -> list[Tensor]:
        torch.manual_seed(3)
        leased = LeasedLoader(numbers(**settings))
        todo = blocks(20, 6)
        leased.queue.hold(todo[:1])
        found = []
        for batch, lease, stop in leased.iterate(0):
            found.append(batch[2])
            if stop == lease.stop:
                leased.queue.hold(todo[todo.index(lease) + 1 :][:1])
        return found

    assert torch.equal(torch.cat(draws()), torch.cat(draws()))


def test_a_leased_epoch_is_what_the_loader_itself_gives() -> None:
    loader = numbers(drop_last=True)
    leased = LeasedLoader(loader)
    size = leased.facts(1).size
    assert size == 18
    leased.queue.hold(blocks(size, 6))
    assert [samples for samples, _, _ in delivered(leased.iterate(0))] == [batch[0].tolist() for batch in loader]


def test_facts() -> None:
    leased = LeasedLoader(numbers(size=10, num_workers=2, prefetch_factor=3), accumulate=4)
    facts = leased.facts(2.5)
    assert (facts.sampling, facts.size, facts.batch_size, facts.accumulate) == ("shared", 10, 3, 4)
    assert (facts.epochs, facts.ahead, facts.block) == (2.5, 6, None)
    assert LeasedLoader(numbers(size=10)).facts(None).ahead == 0
    with pytest.raises(ConfigError, match="no batch of 12"):
        LeasedLoader(numbers(size=10, drop_last=True), part=(0, 4)).facts(1)


def test_settings_of_the_loader_are_kept() -> None:
    def collate(samples: list[tuple[int, int, int]]) -> tuple[Tensor]:
        return (torch.tensor([-sample for sample, _, _ in samples]),)

    leased = LeasedLoader(numbers(collate_fn=collate))
    leased.queue.hold([Lease(0, 0, 3)])
    assert delivered(leased.iterate(0))[0][0] == [0, -1, -2]


def test_batches_keep_their_order_where_the_loader_would_not() -> None:
    leased = LeasedLoader(numbers(size=60, num_workers=2, in_order=False))
    leased.queue.hold(blocks(60, 12))
    assert [sample for samples, _, _ in delivered(leased.iterate(0)) for sample in samples] == list(range(60))


def test_the_ranks_of_a_group_share_each_batch() -> None:
    parts = []
    for rank in range(3):
        leased = LeasedLoader(numbers(size=11), part=(rank, 3))
        leased.queue.hold([Lease(0, 0, 11)])
        parts.append(delivered(leased.iterate(0)))
    assert [[samples for samples, _, _ in part] for part in parts] == [
        [[0, 1, 2], [9]],
        [[3, 4, 5], [10]],
        [[6, 7, 8], [10]],  # none is left for it
    ]
    assert [stop for _, _, stop in parts[2]] == [9, 11]


def test_two_loops_at_a_time_over_one_loader_are_refused() -> None:
    leased = LeasedLoader(numbers())
    leased.queue.hold(blocks(20, 6))
    with pytest.raises(ConfigError, match="twice at a time"):
        list(zip(leased.iterate(0), leased.iterate(0), strict=True))


def test_an_error_of_the_data_set_is_the_users() -> None:
    class Broken(Numbers):
        def __getitem__(self, index: int) -> tuple[int, int, int]:
            if index == 4:
                raise KeyError("no sample 4")
            return super().__getitem__(index)

    leased = LeasedLoader(DataLoader(Broken(8), batch_size=2))
    leased.queue.hold([Lease(0, 0, 8)])
    with pytest.raises(KeyError, match="no sample 4"):
        list(leased.iterate(0))


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


class OwnSampler(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


class OwnLoader(DataLoader[Any]):
    def __iter__(self) -> Any:
        return iter([])


class NoLength:
    def __getitem__(self, index: int) -> int:
        return index


DATA = Numbers(8)
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a list": (lambda: [1, 2], r'DataLoader, not list; with sampling="own"'),
    "a stream": (lambda: DataLoader(Stream()), r'worker\.blocks\(n\), or with sampling="own"'),
    "no batches": (lambda: DataLoader(DATA, batch_size=None), r'worker\.blocks\(n\), or with sampling="own"'),
    "distributed": (
        lambda: DataLoader(DATA, sampler=DistributedSampler(DATA, num_replicas=2, rank=0)),
        "DistributedSampler: leave it out",
    ),
    "own": (lambda: DataLoader(DATA, sampler=OwnSampler()), r'OwnSampler, .* sampling="own"'),
    "weighted": (lambda: DataLoader(DATA, sampler=WeightedRandomSampler([1.0] * 8, 8)), r'Weighted.*sampling="own"'),
    "subset": (lambda: DataLoader(DATA, sampler=SubsetRandomSampler(range(4))), r'SubsetRandom.*sampling="own"'),
    "replacement": (lambda: DataLoader(DATA, sampler=RandomSampler(DATA, replacement=True)), "with replacement"),
    "fewer": (lambda: DataLoader(DATA, sampler=RandomSampler(DATA, num_samples=5)), "of 5 of 8 samples"),
    "more": (lambda: DataLoader(DATA, sampler=RandomSampler(DATA, num_samples=9)), "of 9 of 8 samples"),
    "a part": (lambda: DataLoader(DATA, sampler=SequentialSampler(range(4))), r"of 4 of 8 samples.*Subset"),
    "batches": (
        lambda: DataLoader(DATA, batch_sampler=[[0], [1]]),
        r'batch_sampler of its own, list, .* sampling="own"',
    ),
    "loader": (lambda: OwnLoader(DATA), r'OwnLoader .* sampling="own"'),
    "no length": (lambda: DataLoader(NoLength(), sampler=SequentialSampler(DATA)), r'no len\(\).*sampling="own"'),
    "empty": (lambda: DataLoader(Numbers(0)), "is empty"),
}


@pytest.mark.parametrize(("make", "message"), WRONG.values(), ids=list(WRONG))
def test_what_cannot_be_leased_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LeasedLoader(make())


def test_what_can_be_leased() -> None:
    for loader in (
        DataLoader(DATA, batch_sampler=BatchSampler(SequentialSampler(DATA), 4, drop_last=False)),
        DataLoader(Subset(DATA, [1, 2, 3]), batch_size=2, shuffle=True),
        DataLoader(DATA, sampler=RandomSampler(DATA, num_samples=8)),
    ):
        assert LeasedLoader(loader).facts(1).size == len(loader.dataset)  # type: ignore[arg-type]


def test_a_queue_keeps_what_it_knows() -> None:
    queue = LeaseQueue()
    a, b, c = Lease(0, 0, 4), Lease(1, 0, 4), Lease(0, 4, 8)
    queue.hold([a, b])
    queue.hold([a, b, c])
    assert len(queue) == 3
    piece = queue.next(0, 3)
    assert piece is not None
    queue.deliver(piece)
    queue.hold([a, b, c])
    last = queue.next(0, 3)
    assert last == (a, 3, 4)
    queue.deliver(last)
    assert queue.next(0, 3) is None  # b is of the next epoch, and c comes after it
    assert queue.next(1, 3) == (b, 0, 3)


def test_ids_are_given_once() -> None:
    ids = LeasedIds(6)
    facts = ids.facts(3)
    assert (facts.sampling, facts.size, facts.epochs, facts.block) == ("shared", 6, 3, 1)
    ids.queue.hold([Lease(0, 2, 3)])
    found = []
    for number, lease, stop in ids.iterate(0):
        found.append((number, stop))
        if number == 2:
            ids.queue.hold([Lease(0, 5, 6), Lease(1, 0, 1)])
        assert lease.samples == 1
    assert found == [(2, 3), (5, 6)]
    shuffled = LeasedIds(6, seed=1, shuffle=True)
    shuffled.queue.hold([Lease(4, n, n + 1) for n in range(6)])
    order = [number for number, _, _ in shuffled.iterate(4)]
    assert sorted(order) == list(range(6)) != order
    with pytest.raises(ConfigError, match="at least one block"):
        LeasedIds(0)


def test_a_loader_that_accelerate_prepared() -> None:
    """Its batches are put where accelerate would put them, and come as they are leased."""
    accelerate = pytest.importorskip("accelerate")
    data_loader = pytest.importorskip("accelerate.data_loader")
    loader = DataLoader(torch.arange(8), batch_size=3, shuffle=True, drop_last=True)
    for seedable in (False, True):
        settings = accelerate.DataLoaderConfiguration(use_seedable_sampler=seedable)
        prepared = accelerate.Accelerator(cpu=True, dataloader_config=settings).prepare(loader)
        leased = LeasedLoader(prepared, seed=5)
        assert leased.facts(1).size == 6
        leased.queue.hold([Lease(0, 0, 6)])
        plain = LeasedLoader(loader, seed=5)
        plain.queue.hold([Lease(0, 0, 6)])
        found = [batch.tolist() for batch, _, _ in leased.iterate(0)]
        assert found == [batch.tolist() for batch, _, _ in plain.iterate(0)]
    placed = data_loader.prepare_data_loader(loader, device=torch.device("meta"), put_on_device=True)
    leased = LeasedLoader(placed)
    leased.queue.hold([Lease(0, 0, 3)])
    assert [batch.device.type for batch, _, _ in leased.iterate(0)] == ["meta"]
    second = data_loader.prepare_data_loader(loader, num_processes=2, process_index=1)
    assert LeasedLoader(second, part=(1, 2)).facts(1).size == 6
    dispatched = data_loader.prepare_data_loader(loader, put_on_device=True, dispatch_batches=True)
    with pytest.raises(ConfigError, match="dispatch_batches=False"):
        LeasedLoader(dispatched)
