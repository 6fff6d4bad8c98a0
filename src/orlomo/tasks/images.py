"""The paper's tasks: pictures, the usual augmentation, and a model for them.

Pictures stay bytes until they are in the model, whose first layer normalises them: augmentation then moves a quarter
of the memory, and evaluation cannot forget the normalisation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from orlomo.data.images import Images, load
from orlomo.tasks.data import Batch
from orlomo.tasks.models import resnet20, resnet32, squeezenet
from orlomo.tasks.task import Task, classification_loss

PADDING = 4


class Colours(NamedTuple):
    """Mean and standard deviation of a data set's training pixels, one number per channel, on the scale of 0 to 1."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


CIFAR10 = Colours((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
CIFAR100 = Colours((0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762))
TINY_IMAGENET = Colours((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821))
FASHION_MNIST = Colours((0.2860,), (0.3530,))


class Normalised(nn.Module):
    """A network that takes pictures as bytes; in `channels_last`, which convolutions on a CPU like better."""

    mean: Tensor
    scale: Tensor

    def __init__(self, network: nn.Module, colours: Colours):
        super().__init__()
        self.network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        shape = (1, -1, 1, 1)
        # Not persistent: constants of the data set are no part of the trained model's state.
        self.register_buffer("mean", 255 * torch.tensor(colours.mean).view(shape), persistent=False)
        self.register_buffer("scale", 1 / (255 * torch.tensor(colours.deviation)).view(shape), persistent=False)

    def forward(self, pictures: Tensor) -> Tensor:
        """One score per class."""
        x = pictures.to(self.mean.dtype).sub(self.mean).mul(self.scale)
        scores: Tensor = self.network(x.contiguous(memory_format=torch.channels_last))
        return scores


def crop_and_flip(batch: Batch, generator: torch.Generator) -> Batch:
    """Pad by 4 black pixels, crop to the old size at a random position, mirror half of the pictures.

    >>> pictures = torch.arange(2 * 3 * 8 * 8, dtype=torch.uint8).view(2, 3, 8, 8)
    >>> crop_and_flip((pictures, torch.zeros(2)), torch.Generator().manual_seed(0))[0].shape
    torch.Size([2, 3, 8, 8])
    """
    pictures, labels = batch
    count, height, width = len(pictures), pictures.shape[2], pictures.shape[3]
    # Drawn on the CPU, then moved: the numbers are the same on every device.
    draws = torch.randint(0, 2 * PADDING + 1, (2, count), generator=generator).to(pictures.device)
    mirrored = torch.randint(0, 2, (count,), generator=generator, dtype=torch.bool).to(pictures.device)
    padded = functional.pad(pictures, (PADDING,) * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # a view: (picture, channel, top, left, y, x)
    cropped = windows[torch.arange(count, device=pictures.device), :, draws[0], draws[1]]
    return torch.where(mirrored.view(-1, 1, 1, 1), cropped.flip(3), cropped), labels


def image_task(name: str, images: Images, colours: Colours, network: Callable[[], nn.Module]) -> Task:
    """Pictures with the usual augmentation, and a convolutional network for them."""
    return Task(
        name=name,
        model=lambda: Normalised(network(), colours),
        loss=classification_loss,
        train_data=(images.train_images, images.train_labels),
        test_data=(images.test_images, images.test_labels),
        augment=crop_and_flip,
        batch_size=64,
        compile=True,
    )


def cifar10_resnet20() -> Task:
    """CIFAR-10 and ResNet20."""
    return image_task("cifar10-resnet20", load("cifar10"), CIFAR10, lambda: resnet20(10))


def cifar100_resnet20() -> Task:
    """CIFAR-100 and ResNet20."""
    return image_task("cifar100-resnet20", load("cifar100"), CIFAR100, lambda: resnet20(100))


def cifar10_squeezenet() -> Task:
    """CIFAR-10 and SqueezeNet."""
    return image_task("cifar10-squeezenet", load("cifar10"), CIFAR10, lambda: squeezenet(10))


def cifar100_squeezenet() -> Task:
    """CIFAR-100 and SqueezeNet."""
    return image_task("cifar100-squeezenet", load("cifar100"), CIFAR100, lambda: squeezenet(100))


def tiny_imagenet_resnet32() -> Task:
    """Tiny-ImageNet (200 classes of 64x64) and ResNet32."""
    return image_task("tiny-imagenet-resnet32", load("tiny-imagenet"), TINY_IMAGENET, lambda: resnet32(200))


def fashion_mnist() -> Task:
    """Fashion-MNIST and a perceptron of 128 hidden units: real data in seconds."""

    def perceptron() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))

    task = image_task("fashion-mnist", load("fashion-mnist"), FASHION_MNIST, perceptron)
    return dataclasses.replace(task, augment=None, compile=False)
