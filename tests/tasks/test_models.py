"""The paper's models: their sizes, shapes and shortcuts."""

import pytest
import torch

from orlomo.tasks.models import Block, resnet20, resnet32, squeezenet


@pytest.mark.parametrize(
    ("make", "classes", "parameters"),
    [
        (resnet20, 10, 269_722),
        (resnet20, 100, 275_572),
        (resnet32, 10, 464_154),
        (resnet32, 200, 476_504),
        (squeezenet, 10, 734_986),
        (squeezenet, 100, 781_156),
    ],
)
def test_parameter_counts(make, classes, parameters):
    assert sum(p.numel() for p in make(classes).parameters()) == parameters


@pytest.mark.parametrize(("make", "side"), [(resnet20, 32), (resnet32, 64), (squeezenet, 32)])
def test_scores_for_pictures(make, side):
    model = make(7)
    scores = model(torch.randn(2, 3, side, side))
    assert scores.shape == (2, 7)
    scores.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_depth_counts_weighted_layers():
    def layers(model):
        return sum(isinstance(m, torch.nn.Conv2d | torch.nn.Linear) for m in model.modules())

    assert (layers(resnet20()), layers(resnet32())) == (20, 32)


def test_shortcut_without_parameters_is_every_second_pixel_and_zeros():
    block = Block(16, 32, stride=2).eval()
    torch.nn.init.zeros_(block.conv2.weight)  # the residual branch gives nothing: only the shortcut is left
    x = torch.rand(1, 16, 8, 8)
    out = block(x)
    assert torch.equal(out[:, 8:24], x[:, :, ::2, ::2])
    assert not out[:, :8].any()
    assert not out[:, 24:].any()
