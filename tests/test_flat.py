"""A module as one vector."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from orlomo import OrlomoError
from orlomo.flat import FlatModule


def test_parameters_are_views_and_gradients_are_gathered() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 2))
    before = torch.cat([p.detach().flatten().clone() for p in module.parameters()])
    flat = FlatModule(module)
    assert torch.equal(flat.params, before)
    x = torch.randn(2, 3, 8, 8)
    gradients = flat.backward(module(x).square().sum()).clone()
    plain = torch.autograd.grad(module(x).square().sum(), list(module.parameters()))
    assert torch.allclose(gradients, torch.cat([part.flatten() for part in plain]))
    flat.params.zero_()
    assert all(not p.any() for p in module.parameters())
    pointers = {p.untyped_storage().data_ptr() for p in module.parameters()}
    assert pointers == {flat.params.untyped_storage().data_ptr()}


def test_it_trains_like_the_plain_module() -> None:
    torch.manual_seed(0)
    plain = nn.Linear(3, 2)
    other = nn.Linear(3, 2)
    other.load_state_dict(plain.state_dict())
    flat = FlatModule(other)
    x = torch.randn(5, 3)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        plain(x).square().sum().backward()
        optimizer.step()
        gradients = flat.backward(other(x).square().sum())
        with torch.no_grad():
            flat.params.sub_(gradients, alpha=0.1)
    assert torch.allclose(plain.weight, other.weight)


def test_a_parameter_that_was_not_used_has_gradient_zero() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    flat = FlatModule(module)
    assert flat.backward(module(torch.ones(1, 2)).sum()).all()
    gradients = flat.backward(module[0](torch.ones(1, 2)).sum())
    assert gradients[:6].all()
    assert not gradients[6:].any()


def test_channels_last_and_tied_and_frozen_parameters() -> None:
    conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    value = conv.weight.detach().clone()
    flat = FlatModule(conv)
    assert conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(conv.weight, value)
    x = torch.randn(2, 3, 8, 8)
    [plain] = torch.autograd.grad(conv(x).square().sum(), [conv.weight])
    flat.backward(conv(x).square().sum())
    assert torch.allclose(flat.gradients[: plain.numel()].view(4, 3, 3, 3).permute(0, 3, 1, 2), plain, atol=1e-4)
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    tied[1].bias.requires_grad_(False)
    flat = FlatModule(tied)
    assert flat.params.numel() == 12
    assert tied[1].weight is tied[0].weight


def test_what_cannot_be_flattened_says_so() -> None:
    with pytest.raises(OrlomoError, match="no trainable parameters"):
        FlatModule(nn.ReLU())
    spread = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"))
    with pytest.raises(OrlomoError, match="on one device"):
        FlatModule(spread)


def test_parameters_of_several_dtypes() -> None:
    module = nn.Sequential(nn.Linear(2, 3).bfloat16(), nn.LayerNorm(3), nn.Linear(3, 2).half())
    values = {name: value.clone() for name, value in module.state_dict().items()}
    flat = FlatModule(module)
    assert flat.params.dtype == flat.gradients.dtype == torch.float32
    assert {name: value.dtype for name, value in module.state_dict().items()} == {n: v.dtype for n, v in values.items()}
    for name, window in flat.layout.items():
        assert torch.equal(flat.params[window], values[name].float().flatten())
    flat.params.fill_(1 + 2**-20)  # 1 in bfloat16 and float16
    flat.load()
    assert all(module.get_parameter(name).eq(1 + 2**-20 if name[0] == "1" else 1).all() for name in flat.layout)
    hidden = module[1](module[0](torch.ones(1, 2, dtype=torch.bfloat16)).float())
    gradients = flat.backward(module[2](hidden.half()).sum())
    for name, window in flat.layout.items():
        assert torch.equal(gradients[window], module.get_parameter(name).grad.float().flatten())
    flat.check_copies()
    module[0].weight.data.mul_(0.5)
    with pytest.raises(OrlomoError, match=r"changes its parameter 0\.weight in place"):
        flat.check_copies()
    assert FlatModule(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())).params.dtype == torch.float64
    assert FlatModule(nn.Linear(2, 2).bfloat16()).params.dtype == torch.bfloat16  # one dtype: as it is
