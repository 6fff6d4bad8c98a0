"""SqueezeNet for small pictures: Iandola et al., "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters" (2016),
its simple-bypass variant, with batch normalisation after every convolution and a 3x3 first layer of stride 1 in place
of the 7x7 one: what is commonly trained on 32x32 pictures under this name.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def convolution(inputs: int, outputs: int, size: int) -> nn.Sequential:
    """Convolution, batch normalisation, ReLU."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, padding=size // 2), nn.BatchNorm2d(outputs), nn.ReLU())


class Fire(nn.Module):
    """Squeeze to few channels by 1x1, expand by 1x1 and 3x3 side by side; a bypass where the shape stays."""

    def __init__(self, inputs: int, outputs: int, squeezed: int):
        super().__init__()
        self.squeeze = convolution(inputs, squeezed, 1)
        self.expand1 = convolution(squeezed, outputs // 2, 1)
        self.expand3 = convolution(squeezed, outputs // 2, 3)
        self.bypass = inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """One module."""
        narrow = self.squeeze(x)
        out = torch.cat((self.expand1(narrow), self.expand3(narrow)), dim=1)
        return out + x if self.bypass else out


class SqueezeNet(nn.Module):
    """Eight fire modules between a first convolution and a 1x1 convolution to the classes.

    >>> [sum(p.numel() for p in SqueezeNet(classes).parameters()) for classes in (10, 100)]
    [734986, 781156]
    """

    def __init__(self, classes: int):
        super().__init__()
        self.layers = nn.Sequential(
            convolution(3, 96, 3),
            nn.MaxPool2d(2),
            Fire(96, 128, 16),
            Fire(128, 128, 16),
            Fire(128, 256, 32),
            nn.MaxPool2d(2),
            Fire(256, 256, 32),
            Fire(256, 384, 48),
            Fire(384, 384, 48),
            Fire(384, 512, 64),
            nn.MaxPool2d(2),
            Fire(512, 512, 64),
            nn.Conv2d(512, classes, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """A score a class."""
        return functional.adaptive_avg_pool2d(self.layers(x), 1).flatten(1)


def squeezenet(classes: int = 10) -> SqueezeNet:
    """0.73 million parameters for 10 classes."""
    return SqueezeNet(classes)
