"""What of a user's model travels, and how; what is refused and what is said."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

import orlomo
from orlomo.errors import ConfigError, OrlomoWarning
from orlomo.loop.attached import Attached
from orlomo.loop.buffers import encoding

PLAIN = orlomo.ALSGD()


def sgd(model: nn.Module, **more: Any) -> SGD:
    return SGD(model.parameters(), lr=0.5, **more)


def step(model: nn.Module, optimizer: Optimizer) -> None:
    optimizer.zero_grad()
    dtype = next(model.parameters()).dtype
    model(torch.ones(2, 3, dtype=dtype)).float().pow(2).sum().backward()
    optimizer.step()


def assigned(attached: Attached, value: Tensor | None = None) -> dict[str, Tensor]:
    vectors = {"params": attached.vector() if value is None else value}
    attached.load(vectors, 0, 0)
    return vectors


def delta(attached: Attached, vectors: dict[str, Tensor]) -> Tensor:
    report = {"delta_params": torch.full_like(vectors["params"], torch.nan)}
    attached.measure(vectors, report)
    return report["delta_params"]


def test_a_round_measures_how_far_the_parameters_moved() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).to(memory_format=torch.channels_last)
    optimizer = sgd(model)
    calls: list[int] = []
    attached = Attached(model, optimizer, PLAIN, on_step=lambda: calls.append(attached.steps))
    start = torch.randn(attached.facts.parameters)
    vectors = {"params": start.clone()}
    attached.load(vectors, 0, 0)
    assert torch.equal(nn.utils.parameters_to_vector(model.parameters()), start)
    for _ in range(3):
        step(model, optimizer)
    moved = delta(attached, vectors)
    assert torch.equal(moved, start - nn.utils.parameters_to_vector(model.parameters()).detach())
    assert torch.equal(vectors["params"], start)
    assert calls == [1, 2, 3]
    attached.load(vectors, 0, 0)
    assert attached.steps == 0
    assert delta(attached, vectors).abs().sum() == 0
    attached.close()
    step(model, optimizer)
    assert attached.steps == 0


def test_the_vector_has_the_logical_order_whatever_the_memory_format() -> None:
    torch.manual_seed(0)
    model = nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
    attached = Attached(model, sgd(model), PLAIN)
    assert torch.equal(attached.vector()[: model.weight.numel()], model.weight.detach().contiguous().flatten())
    before = model.weight.detach().clone()
    assigned(attached)
    assert torch.equal(model.weight, before)


def test_tied_parameters_are_there_once_and_frozen_ones_not() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    model[1].requires_grad_(False)
    facts = Attached(model, sgd(model), PLAIN).facts
    assert facts.names == ("0.weight", "0.bias", "2.bias")
    assert facts.parameters == 9 + 3 + 3
    assert facts.optimizers == ("SGD",)
    assert len(facts.frozen) == 8
    with torch.no_grad():
        model[1].bias[0] += 1e-3
    assert Attached(model, sgd(model), PLAIN).facts.frozen != facts.frozen
    model[1].requires_grad_(True)
    assert Attached(model, sgd(model), PLAIN).facts.frozen == ""


class Adapter(nn.Module):
    """A frozen layer with a low-rank one beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(3, 3).requires_grad_(False)
        self.down, self.up = nn.Linear(3, 1, bias=False), nn.Linear(1, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


def test_only_adapters_travel() -> None:
    model = nn.Sequential(Adapter(), Adapter())
    attached = Attached(model, sgd(model), PLAIN)
    assert attached.facts.names == ("0.down.weight", "0.up.weight", "1.down.weight", "1.up.weight")
    assert attached.vector().nbytes == 4 * 12


@pytest.mark.parametrize(
    ("dtypes", "wide"),
    [
        ((torch.bfloat16, torch.bfloat16), torch.float32),
        ((torch.float32, torch.bfloat16), torch.float32),
        ((torch.float64, torch.float16), torch.float64),
    ],
)
def test_a_delta_begins_at_the_rounded_start(dtypes: tuple[torch.dtype, torch.dtype], wide: torch.dtype) -> None:
    first, second = nn.Linear(3, 1, dtype=dtypes[0]), nn.Linear(3, 1, dtype=dtypes[1])
    optimizer = SGD([*first.parameters(), *second.parameters()], lr=0.5)
    attached = Attached([first, second], optimizer, PLAIN)
    assert attached.facts.dtype == wide
    assert attached.facts.dtypes == (dtypes[0], dtypes[0], dtypes[1], dtypes[1])
    start = torch.rand(8, dtype=wide)
    vectors = assigned(attached, start.clone())
    # No step: nothing moved, although the start is no number of bfloat16.
    assert delta(attached, vectors).abs().sum() == 0
    vectors = assigned(attached, start.clone())
    for model in (first, second):
        step(model, optimizer)
    now = torch.cat([p.detach().flatten().to(wide) for m in (first, second) for p in m.parameters()])
    rounded = torch.cat([part.to(dtype).to(wide) for part, dtype in zip(start.split(4), dtypes, strict=True)])
    assert torch.equal(delta(attached, vectors), rounded - now)
    assert torch.equal(vectors["params"], start)


def test_two_models_are_one_vector_with_prefixed_names() -> None:
    one, two = nn.Linear(3, 1), nn.Linear(3, 2)
    first, second = sgd(one), AdamW(two.parameters())
    attached = Attached([one, two], [first, second], PLAIN)
    assert attached.facts.names == ("0.weight", "0.bias", "1.weight", "1.bias")
    assert attached.facts.optimizers == ("SGD", "AdamW")
    vectors = assigned(attached)
    for _ in range(3):
        for p in one.parameters():  # as in a GAN, while the other one is trained
            p.requires_grad_(False)
        step(two, second)
    assert attached.measure(vectors, {"delta_params": torch.empty(12)}) == (3, 0.5)
    attached.load(vectors, 0, 0)
    one.requires_grad_(True)
    step(one, first)
    assert attached.steps == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_and_parallel_models_have_plain_names() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    plain = Attached(model, sgd(model), PLAIN).facts
    assert Attached(torch.compile(model), sgd(model), PLAIN).facts == plain
    assert Attached(nn.DataParallel(model), sgd(model), PLAIN).facts == plain
    assert Attached(torch.compile(nn.DataParallel(model)), sgd(model), PLAIN).facts == plain
    model[0] = torch.compile(model[0])  # type: ignore[assignment]
    assert Attached(model, sgd(model), PLAIN).facts == plain


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_a_compiled_model_computes_with_what_was_loaded() -> None:
    torch._dynamo.reset()
    model = nn.Linear(3, 1)
    compiled: Any = torch.compile(model, backend="eager")
    optimizer = sgd(model)
    attached = Attached(compiled, optimizer, PLAIN)
    for value in (1.0, 2.0):
        vectors = assigned(attached, torch.full((4,), value))
        assert compiled(torch.ones(1, 3)).item() == 4 * value
        step(compiled, optimizer)
        assert attached.steps == 1
        assert delta(attached, vectors).abs().sum() > 0


def test_buffers_are_read_and_loaded_as_bytes() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    model.register_buffer("cache", torch.ones(100), persistent=False)
    model.register_buffer("shared", model[1].running_mean)
    attached = Attached(model, sgd(model), PLAIN)
    assert [name for name, _, _ in attached.facts.buffers] == [
        "shared",
        "1.running_var",
        "1.num_batches_tracked",
    ]
    before = attached.buffers()
    assert before is not None
    assert before.numel() == encoding(attached.facts.buffers).bytes == 3 * 4 + 3 * 4 + 8
    model(torch.randn(4, 3))
    after = attached.buffers()
    assert after is not None
    mean = encoding(attached.facts.buffers).combine([before, after], after)
    expected = 0.5 * model[1].running_var + 0.5
    attached.load_buffers(mean)
    assert torch.allclose(model[1].running_var, expected)
    assert model[1].num_batches_tracked == 1
    with pytest.raises(ConfigError, match="12 bytes, not 32"):
        attached.load_buffers(mean[:12])
    model[1].running_var = torch.ones(5)
    with pytest.raises(ConfigError, match=r"1.running_var was \(3,\) torch.float32 when attached and is now \(5,\)"):
        attached.buffers()


def test_a_model_without_buffers_reports_none() -> None:
    model = nn.Linear(2, 1)
    assert Attached(model, sgd(model), PLAIN).buffers() is None


def test_a_model_lends_its_memory_to_other_parameters() -> None:
    model = nn.Sequential(nn.Linear(3, 1), nn.BatchNorm1d(1))
    optimizer = sgd(model)
    attached = Attached(model, optimizer, PLAIN)
    vectors = assigned(attached)
    step(model, optimizer)
    own, statistics = attached.vector(), attached.buffers()
    assert statistics is not None
    with attached.loaded(torch.zeros(6), torch.zeros_like(statistics)):
        assert attached.vector().abs().sum() == 0
        assert model[1].running_var == 0
    assert torch.equal(attached.vector(), own)
    assert torch.equal(attached.buffers(), statistics)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="of the user"), attached.loaded(torch.zeros(6)):
        raise RuntimeError("of the user")
    assert torch.equal(attached.vector(), own)
    with (
        pytest.raises(ConfigError, match="parameters that are not its own would be lost"),
        attached.loaded(torch.zeros(6)),
    ):
        step(model, optimizer)
    assert torch.equal(attached.vector(), own)
    assert torch.equal(delta(attached, vectors), vectors["params"] - own)


def test_after_the_end_a_step_can_be_prevented() -> None:
    model = nn.Sequential(nn.Linear(3, 1), nn.BatchNorm1d(1))
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.1)
    ended: list[str] = []

    def stepped() -> None:
        if ended:
            raise StopIteration

    attached = Attached(model, optimizer, PLAIN, scheduler=scheduler, on_step=stepped)
    assigned(attached)
    step(model, optimizer)
    final, statistics = torch.rand(6), attached.buffers()
    model(torch.ones(2, 3))
    ended.append("now")
    attached.finish(final, statistics, clock=10, epoch=0)
    with pytest.raises(StopIteration):
        optimizer.step()
    assert torch.equal(attached.vector(), final)
    assert torch.equal(attached.buffers(), statistics)  # type: ignore[arg-type]
    assert attached.learning_rate == pytest.approx(0.05)


def test_state_is_kept_or_reset() -> None:
    for state, expected in (("keep", 3), ("reset", 1)):
        model = nn.Linear(3, 1)
        optimizer = AdamW(model.parameters())
        attached = Attached(model, optimizer, PLAIN, state=state)
        for _ in range(3):
            vectors = assigned(attached)
            step(model, optimizer)
            delta(attached, vectors)
        assert optimizer.state[model.weight]["step"] == expected
    with pytest.raises(ConfigError, match="state must be 'keep' or 'reset', not 'average'"):
        Attached(model, optimizer, PLAIN, state="average")
    with pytest.raises(ConfigError, match="'reset' is for methods without local momentum: orlomo sets"):
        Attached(model, sgd(model, momentum=0.9), orlomo.OrLoMo(), state="reset")


class Masters(Optimizer):
    """SGD on float32 copies of the parameters."""

    def __init__(self, params: Any):
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in self.param_groups[0]["params"]:
            copy = self.state[p].setdefault("copy", p.float().clone())
            p.copy_(copy.sub_(p.grad, alpha=0.1))


def test_an_optimizer_that_goes_on_from_a_copy_has_to_be_reset() -> None:
    model = nn.Linear(3, 1, dtype=torch.bfloat16)
    optimizer = Masters(model.parameters())
    attached = Attached(model, optimizer, PLAIN)
    vectors = assigned(attached)
    step(model, optimizer)
    with pytest.raises(ConfigError, match=r"Masters keeps a copy of the parameters in its state \('copy'\)"):
        delta(attached, vectors)
    attached.close()
    attached = Attached(model, optimizer, PLAIN, state="reset")
    for value in (1.0, 2.0):
        vectors = assigned(attached, torch.full((4,), value))
        step(model, optimizer)
        moved = delta(attached, vectors)
        assert moved.abs().max() > 0
        assert torch.equal(attached.vector(), value - moved)
    for name in ("AdamW", "ASGD", "Adagrad", "RMSprop", "NAdam", "Adadelta", "Rprop", "Adafactor"):
        attached = Attached(model, usual := getattr(torch.optim, name)(model.parameters()), PLAIN)
        vectors = assigned(attached)
        step(model, usual)
        delta(attached, vectors)


def test_parameters_that_move_without_a_step_are_an_error() -> None:
    one, two = nn.Linear(3, 1), nn.Linear(3, 1)
    first, second = sgd(one), sgd(two)
    attached = Attached([one, two], [first, second], PLAIN)
    vectors = assigned(attached)
    step(one, first)
    sgd_of_another = sgd(two)
    step(two, sgd_of_another)
    with pytest.raises(ConfigError, match=r"parameters changed, but SGD was not seen to make a step"):
        delta(attached, vectors)


def test_parameters_in_no_optimizer_are_said_and_must_not_move() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    optimizer = sgd(model[1])
    with pytest.warns(OrlomoWarning, match=r"each of the 2 parameters 0.weight, 0.bias is in none of the optimizers"):
        attached = Attached(model, optimizer, PLAIN)
    assert attached.facts.names == ("1.weight", "1.bias")
    vectors = assigned(attached)
    step(model, optimizer)
    delta(attached, vectors)
    vectors = assigned(attached)
    step(model, sgd(model[0]))
    with pytest.raises(ConfigError, match=r"0.weight changes in training, but is in none of the optimizers"):
        delta(attached, vectors)


def test_frozen_parameters_that_move_are_said_once() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    model[0].requires_grad_(False)
    attached = Attached(model, sgd(model), PLAIN)

    def rounds() -> None:
        for _ in range(3):
            vectors = assigned(attached)
            with torch.no_grad():
                model[0].bias.mul_(0.9)
            delta(attached, vectors)

    with pytest.warns(OrlomoWarning, match=r"the parameter 0.bias is frozen, but changes in training") as said:
        rounds()
    assert len(said) == 1


def test_what_is_trained_cannot_change_later() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    model[0].requires_grad_(False)
    optimizer = sgd(model)
    attached = Attached(model, optimizer, PLAIN)
    vectors = assigned(attached)
    model[0].bias.requires_grad_(True)
    for act in (lambda: attached.load(vectors, 0, 0), lambda: delta(attached, vectors)):
        with pytest.raises(ConfigError, match=r"0.bias was frozen when attached and is not now"):
            act()
    model[0].requires_grad_(False)
    delta(attached, vectors)
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    for act in (lambda: attached.load(vectors, 0, 0), lambda: delta(attached, vectors)):
        with pytest.raises(ConfigError, match="other parameters than when it was attached"):
            act()


def test_models_moved_and_optimizers_loaded_after_attach() -> None:
    model = nn.Linear(3, 1)
    optimizer = sgd(model)
    attached = Attached(model, optimizer, PLAIN)
    optimizer.load_state_dict(optimizer.state_dict())  # makes new groups
    for p in model.parameters():
        p.data = p.data.clone()  # as `to` does
    vectors = assigned(attached, torch.ones(4))
    assert model.weight.tolist() == [[1, 1, 1]]
    step(model, optimizer)
    assert torch.equal(delta(attached, vectors), 1 - attached.vector())


class Lone(nn.Module):
    """One parameter."""

    def __init__(self, value: Tensor):
        super().__init__()
        self.value = nn.Parameter(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.ones(2, device="meta"), "value is on the device meta"),
        (torch.eye(2).to_sparse(), "value is sparse"),
        (torch.ones(2, dtype=torch.complex64), r"value is torch.complex64"),
    ],
)
def test_what_is_no_vector_of_numbers_is_refused(value: Tensor, message: str) -> None:
    model = Lone(value)
    with pytest.raises(ConfigError, match=message):
        Attached(model, sgd(model), PLAIN)


def test_layers_without_a_shape_are_refused() -> None:
    model = nn.LazyLinear(2)
    with pytest.raises(ConfigError, match="has no shape yet"):
        Attached(model, sgd(model), PLAIN)


def test_models_and_optimizers_must_fit_each_other() -> None:
    model, other = nn.Linear(3, 1), nn.Linear(2, 1)
    with pytest.raises(ConfigError, match=r"parameter of shape \(1, 2\) that is in no model: attach its module"):
        Attached(model, SGD([*model.parameters(), *other.parameters()], lr=0.1), PLAIN)
    with pytest.raises(ConfigError, match=r"optimizers 0 and 1 have the same parameter, of shape \(1, 3\)"):
        Attached(model, [sgd(model), sgd(model)], PLAIN)
    with pytest.raises(ConfigError, match="nothing to train"):
        Attached(model.requires_grad_(False), sgd(model), PLAIN)
    with pytest.raises(ConfigError, match=r"model must be a torch.nn.Module or a list of them, not the class Linear"):
        Attached(nn.Linear, sgd(other), PLAIN)
    with pytest.raises(ConfigError, match="no model was given"):
        Attached([], sgd(other), PLAIN)
    with pytest.raises(ConfigError, match="no optimizer was given"):
        Attached(other, [], PLAIN)


def test_a_refused_attach_leaves_nothing_behind() -> None:
    model = nn.Linear(3, 1)
    optimizer = sgd(model)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"orlomo needs SGD\(momentum=0.9\) in every group; group 0 has 0"):
            Attached(model, optimizer, orlomo.OrLoMo())
    assert not optimizer._optimizer_step_post_hooks


def test_a_group_without_parameters_is_no_problem() -> None:
    model = nn.Linear(3, 1)
    optimizer = SGD([{"params": [], "lr": 0.25}, {"params": list(model.parameters())}], lr=0.5, momentum=0.9)
    attached = Attached(model, optimizer, orlomo.OrLoMo())
    vectors = assigned(attached)
    step(model, optimizer)
    report = {"delta_params": torch.empty(4), "delta_momentum": torch.empty(4)}
    assert attached.measure(vectors, report) == (1, 0.25)
    assert torch.allclose(report["delta_params"], report["delta_momentum"])
    optimizer.param_groups.clear()
    with pytest.raises(ConfigError, match="other parameters"):
        attached.load(vectors, 0, 0)


def test_vectors_of_another_model_are_refused() -> None:
    model = nn.Linear(3, 1)
    attached = Attached(model, sgd(model), PLAIN)
    with pytest.raises(ConfigError, match=r"the vector is \(3,\) torch.float32, not \(4,\) torch.float32"):
        attached.load({"params": torch.ones(3)}, 0, 0)
