"""The paper's models, for small pictures.

Residual networks as in section 4.2 of He et al., "Deep Residual Learning for Image Recognition" (CVPR 2016): three
stages of 16, 32 and 64 channels, identity shortcuts without parameters. ResNet20 has n = 3 blocks per stage, ResNet32
has n = 5; depth = 6 n + 2.

SqueezeNet: Iandola et al., "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters" (2016), its simple-bypass
variant, with batch normalisation after every convolution and a 3x3 first layer of stride 1 in place of the 7x7 one:
what is commonly trained on 32x32 pictures under this name.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

STAGES = (16, 32, 64)


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut: the identity; where the shape changes, every second pixel and zeros for
    the new channels (option A of the paper)."""

    def __init__(self, inputs: int, channels: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.stride = stride
        self.new_channels = channels - inputs

    def forward(self, x: Tensor) -> Tensor:
        """One block."""
        out = functional.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        if self.new_channels:
            half = self.new_channels // 2
            x = functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, half, self.new_channels - half))
        return functional.relu(out + x)


class ResNet(nn.Module):
    """The network: a convolution, three stages of `blocks` blocks, a mean over the picture, a linear layer.

    It works for any picture size, since the last mean is over all that is left of it.

    >>> sum(p.numel() for p in ResNet(blocks=3, classes=10).parameters())
    269722
    """

    def __init__(self, blocks: int, classes: int):
        super().__init__()
        self.conv = nn.Conv2d(3, STAGES[0], 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(STAGES[0])
        layers: list[nn.Module] = []
        inputs = STAGES[0]
        for channels in STAGES:
            for number in range(blocks):
                layers.append(Block(inputs, channels, stride=2 if number == 0 and channels != STAGES[0] else 1))
                inputs = channels
        self.blocks = nn.Sequential(*layers)
        self.linear = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                # As in the paper (He et al. 2015); torch's own default is narrower.
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        """One score per class."""
        out = functional.relu(self.norm(self.conv(x)))
        pooled: Tensor = self.blocks(out).mean(dim=(2, 3))
        scores: Tensor = self.linear(pooled)
        return scores


def resnet20(classes: int = 10) -> ResNet:
    """0.27 million parameters."""
    return ResNet(3, classes)


def resnet32(classes: int = 10) -> ResNet:
    """0.46 million parameters."""
    return ResNet(5, classes)


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
        """One score per class."""
        return functional.adaptive_avg_pool2d(self.layers(x), 1).flatten(1)


def squeezenet(classes: int = 10) -> SqueezeNet:
    """0.73 million parameters for 10 classes."""
    return SqueezeNet(classes)
