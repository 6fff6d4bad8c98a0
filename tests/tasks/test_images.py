"""Augmentation and normalisation as batch operations."""

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

import orlomo
from orlomo.engines.round import RoundRunner
from orlomo.tasks.images import CIFAR10, FASHION_MNIST, Normalised, crop_and_flip


def pictures(count=200, channels=3, side=8):
    return torch.randint(1, 256, (count, channels, side, side), generator=torch.Generator().manual_seed(1)).byte()


def test_each_picture_is_one_of_its_162_crops():
    """Pad 4, crop anywhere, mirror or not: checked against all 9 x 9 x 2 possibilities, picture by picture."""
    before = pictures(30)
    labels = torch.arange(30)
    after, same_labels = crop_and_flip((before, labels), torch.Generator().manual_seed(0))
    assert same_labels is labels
    assert after.dtype == torch.uint8
    padded = functional.pad(before, (4, 4, 4, 4))
    positions = []
    for number in range(30):
        found = [
            (top, left, mirrored)
            for top in range(9)
            for left in range(9)
            for mirrored in (False, True)
            if torch.equal(
                after[number],
                padded[number, :, top : top + 8, left : left + 8].flip(2)
                if mirrored
                else padded[number, :, top : top + 8, left : left + 8],
            )
        ]
        assert len(found) == 1
        positions.extend(found)
    assert len({top for top, _, _ in positions}) > 5
    assert len({left for _, left, _ in positions}) > 5
    assert {mirrored for _, _, mirrored in positions} == {False, True}


def test_draws_are_uniform_and_depend_on_the_generator_alone():
    ones = torch.ones(4000, 1, 8, 8, dtype=torch.uint8)
    labels = torch.zeros(4000)
    after, _ = crop_and_flip((ones, labels), torch.Generator().manual_seed(3))
    again, _ = crop_and_flip((ones, labels), torch.Generator().manual_seed(3))
    other, _ = crop_and_flip((ones, labels), torch.Generator().manual_seed(4))
    assert torch.equal(after, again)
    assert not torch.equal(after, other)
    # A crop at (top, left) keeps 8 - |top - 4| rows of the picture: uniform tops give a mean of 8 - 20/9.
    rows = (after.sum(dim=(1, 3)) > 0).sum(dim=1).float()
    assert abs(rows.mean() - (8 - 20 / 9)) < 0.1


def test_normalisation_is_of_the_scale_0_to_1_in_channels_last():
    seen = []

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x):
            seen.append(x)
            return self.conv(x)

    batch = pictures(5)
    model = Normalised(Network(), CIFAR10)
    model(batch)
    mean, deviation = torch.tensor(CIFAR10.mean), torch.tensor(CIFAR10.deviation)
    expected = (batch.float() / 255 - mean.view(1, 3, 1, 1)) / deviation.view(1, 3, 1, 1)
    assert torch.allclose(seen[0], expected, atol=1e-5)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    assert model.network.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert list(model.state_dict()) == ["network.conv.weight", "network.conv.bias"]


def test_one_channel_works_too():
    model = Normalised(nn.Flatten(), FASHION_MNIST)
    assert model(pictures(2, channels=1)).shape == (2, 64)


SETS = {  # training and test images, bytes of a row
    "cifar10": (50_000, 10_000, 1 + 3072),
    "cifar100": (50_000, 10_000, 2 + 3072),
    "fashion-mnist": (60_000, 10_000, 1 + 784),
    "tiny-imagenet": (100_000, 10_000, 1 + 12_288),
}


@pytest.fixture
def black_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored data sets of the official sizes, all zeros: files with holes, which take no disk space."""
    monkeypatch.setenv("ORLOMO_DATA", str(tmp_path))
    for name, (train, test, row) in SETS.items():
        (tmp_path / name).mkdir()
        for split, count in (("train", train), ("test", test)):
            with (tmp_path / name / f"{split}.bin").open("wb") as file:
                file.truncate(count * row)


@pytest.mark.parametrize(
    ("name", "size", "parameters"),
    [
        ("cifar10-resnet20", 50_000, 269_722),
        ("cifar100-resnet20", 50_000, 275_572),
        ("cifar10-squeezenet", 50_000, 734_986),
        ("cifar100-squeezenet", 50_000, 781_156),
        ("tiny-imagenet-resnet32", 100_000, 476_504),
        ("fashion-mnist", 60_000, 101_770),
    ],
)
def test_the_papers_tasks_take_a_step(black_pictures: None, name: str, size: int, parameters: int) -> None:
    task = orlomo.task(name, batch_size=4)
    assert task.size == size
    method = orlomo.OrLoMo(learning_rate=0.1, local_steps=1)
    runner = RoundRunner(dataclasses.replace(task, compile=False), method, seed=0)
    [assignment] = method.server(task.initial_params(0), 1).start()
    report = runner.run(assignment).report
    assert report.delta_params.numel() == parameters
    assert report.delta_params.isfinite().all()
    assert report.delta_params.any()
