"""Data in the forms that users have them: collated, drawn by a sampler, each worker's own, streamed."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, RandomSampler, WeightedRandomSampler

import orlomo
from orlomo.errors import Interrupted
from orlomo.tasks.batches import round_batches
from orlomo.tasks.data import fetch
from orlomo.tasks.shares import PerWorker, Shares, Stream
from own_data import Numbers, by_name, text, two_sites
from user import INPUTS, LABELS, task, train


def streamed(**changes: Any) -> orlomo.Task:
    return task(train_data=Numbers(60), **changes)


def opened_anywhere() -> orlomo.Task:
    def share(rank: int, count: int, position: int) -> Iterator[tuple[Tensor, Tensor]]:
        for n in range(rank + position * count, len(INPUTS), count):
            yield INPUTS[n], LABELS[n]

    return task(train_data=orlomo.Stream(share, samples=len(INPUTS)))


def weighted() -> orlomo.Task:
    return task(sampler=WeightedRandomSampler([1.0] * 8 + [0.0] * 56, 32))


TASKS = {
    "collated": text,
    "each its own": two_sites,
    "a stream": streamed,
    "a stream that opens anywhere": opened_anywhere,
    "drawn by weight": weighted,
    "columns by name": by_name,
}


@pytest.mark.parametrize("name", TASKS)
def test_the_same_bits_on_any_number_of_jobs_and_in_a_replay(name: str, tmp_path: Path) -> None:
    one = train(TASKS[name](), tmp_path / "one", workers=3, jobs=1)
    two = train(TASKS[name](), tmp_path / "two", workers=3, jobs=2)
    assert torch.equal(one.params, two.params)
    assert np.array_equal(one.metric_columns["train_loss"], two.metric_columns["train_loss"])
    assert orlomo.replay(one.folder, task=TASKS[name](), jobs=2).agrees


@pytest.mark.parametrize("name", ["collated", "each its own", "a stream"])
def test_on_processes_and_replayed(name: str, tmp_path: Path) -> None:
    run = train(TASKS[name](), tmp_path / "run", engine="processes", jobs=None)
    assert orlomo.replay(run.folder, task=TASKS[name](), jobs=1).agrees


class StopOnce(orlomo.Callback):
    def event(self, row: dict[str, Any]) -> None:
        if row["reports"] == 3:
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["each its own", "a stream", "a stream that opens anywhere"])
def test_stopped_and_resumed(name: str, tmp_path: Path) -> None:
    whole = train(TASKS[name](), tmp_path / "whole", checkpoint_seconds=0)
    with pytest.raises((KeyboardInterrupt, Interrupted)):
        train(TASKS[name](), tmp_path / "run", checkpoint_seconds=0, callbacks=[StopOnce()])
    said: list[str] = []
    resumed = orlomo.resume(tmp_path / "run", task=TASKS[name](), jobs=1, warn=said.append)
    assert torch.equal(whole.params, resumed.params)
    assert any("from its beginning again" in line for line in said) == (name == "a stream")


def test_each_worker_takes_its_own_samples_epoch_by_epoch() -> None:
    made, taken = two_sites(batch_size=6), []
    for round in range(4):
        taken += [n for chosen in round_batches(made, 0, 1, round, 2) for n in chosen.tolist()]
    assert sorted(taken[:24]) == list(range(24))  # b has 24
    assert sorted(taken[24:48]) == list(range(24))
    [first] = round_batches(made, 0, 1, 0, 1)
    inputs, labels = fetch(Shares(made, 0).of(1), first)
    assert torch.equal(inputs, INPUTS[40:][torch.from_numpy(first)])
    assert len(labels) == 6


def test_the_run_says_who_trained_on_what(tmp_path: Path) -> None:
    run = train(two_sites(), tmp_path / "run", workers=3)
    assert [(row["worker"], row["data"], row["samples"]) for row in run.worker_data] == [
        (0, "a", 40),
        (1, "b", 24),
        (2, "a", 40),
    ]
    from orlomo.report.view import view_of

    uses = view_of(run, "run", []).to_json()["uses"]
    events = run.event_columns
    steps = int(events["local_steps"][events["worker"] == 1].sum())
    assert uses[1]["data"] == "b"
    assert uses[1]["epochs"] == pytest.approx(steps * 8 / 24)


def test_workers_share_a_stream_and_begin_again() -> None:
    stream = Stream(lambda rank, count, position: iter(range(rank + position * count, 10, count)), samples=10)
    shares = [stream.share(rank, 3, seed=0) for rank in range(3)]
    assert sorted(shares[0][n] for n in range(4)) + [shares[1][n] for n in range(3)] == [0, 3, 6, 9, 1, 4, 7]
    assert [shares[2][n] for n in range(7)] == [2, 5, 8, 2, 5, 8, 2]
    again = stream.share(2, 3, seed=0)
    assert again[5] == 8
    assert again[1] == 5
    assert len(pickle.loads(pickle.dumps(Stream(Numbers(7))))) == 7


def test_a_share_that_is_opened_again_gives_the_same_samples() -> None:
    stream = Stream(Numbers(20))
    read = stream.share(1, 2, seed=5)
    whole = [read[n] for n in range(24)]
    late = stream.share(1, 2, seed=5)
    for position in (16, 17, 23, 8):
        assert all(torch.equal(a, b) for a, b in zip(late[position], whole[position], strict=True))


def test_a_sampler_decides_what_is_drawn() -> None:
    made = weighted()
    assert made.size == 32
    drawn = [n for chosen in round_batches(made, 0, 2, 0, 8) for n in chosen.tolist()]
    assert set(drawn) <= set(range(8))
    assert len(set(drawn)) > 3
    assert drawn == [n for chosen in round_batches(made, 0, 2, 0, 8) for n in chosen.tolist()]
    backwards = task(sampler=lambda draw: range(63, -1, -1))
    assert round_batches(backwards, 0, 0, 0, 1)[0].tolist() == list(range(63, 55, -1))


def test_a_hugging_face_style_data_set(tmp_path: Path) -> None:
    class Rows(Dataset[Any]):
        def __len__(self) -> int:
            return len(INPUTS)

        def __getitem__(self, index: int) -> dict[str, Tensor]:
            return {"input": INPUTS[index], "labels": LABELS[index]}

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(batch["input"]), batch["labels"])

    made = task(train_data=Rows(), test_data=Rows(), loss=loss, metrics=())
    other = task(train_data=(INPUTS, LABELS), metrics=())
    assert torch.equal(train(made, tmp_path / "rows").params, train(other, tmp_path / "columns").params)


def test_a_list_of_pictures_is_one_of_samples() -> None:
    pictures = [torch.full((3, 4, 4), float(n)) for n in range(9)]
    made = task(train_data=pictures, loss=lambda model, batch: batch.mean(), test_data=None, metrics=())
    assert made.size == 9
    assert fetch(made.train_data, np.array([2, 5])).shape == (2, 3, 4, 4)


def test_a_random_sampler_with_replacement_is_a_function_of_seed_worker_and_epoch() -> None:
    made = task(sampler=RandomSampler(range(64), replacement=True, num_samples=16))  # type: ignore[arg-type]
    orders = {tuple(np.concatenate(round_batches(made, 0, worker, 0, 2)).tolist()) for worker in range(4)}
    assert len(orders) == 4
    assert isinstance(PerWorker([INPUTS]).of(7), Tensor)
