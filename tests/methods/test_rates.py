"""Learning rates: eta by delay, gamma by epochs."""

from __future__ import annotations

import math

import pytest
import torch

import orlomo
from orlomo.methods.rates import global_rate, schedule


def test_constant_global_rate() -> None:
    assert global_rate("constant")(100, 4) == 0.25
    assert global_rate("constant:0.5")(100, 4) == 0.5


def test_delay_adaptive_at_its_edge() -> None:
    eta = global_rate("delay-adaptive")
    assert [eta(delay, 4) for delay in (0, 8, 9, 1000)] == [0.25, 0.25, 1 / 9, 0.001]


def test_schedules() -> None:
    assert schedule("cosine:10")(0) == 1.0
    assert schedule("cosine:10")(5) == pytest.approx(0.5)
    assert schedule("cosine:10")(11) == pytest.approx(0.0)
    assert schedule("step:2,4@0.5")(4.5) == 0.25
    warm = schedule("step:10", warmup_epochs=4)
    assert [warm(0), warm(1), warm(4), warm(10)] == pytest.approx([0.01, 0.25, 1.0, 0.1])


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"schedule": "stp:3"}, "did you mean 'step'"),
        ({"schedule": "step:"}, "a drop's epoch must be a number"),
        ({"schedule": "cosine:0"}, "must be above 0"),
        ({"global_rate": "delay-adaptve"}, "did you mean 'delay-adaptive'"),
        ({"global_rate": "constant:x"}, "must be a number"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"learning_rate": math.nan}, "learning_rate must be a number, not nan"),
        ({"momentum": 1.0}, "momentum must be at least 0 and below 1"),
        ({"local_steps": 0}, "local_steps must be"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"warmup_epochs": -1.0}, "warmup_epochs"),
        ({"momentun": 0.5}, "did you mean 'momentum'"),
    ],
)
def test_bad_settings_say_what_is_wrong(settings: dict[str, object], text: str) -> None:
    with pytest.raises(orlomo.OrlomoError, match=text):
        orlomo.method("orlomo", **settings)


def test_the_server_decides_the_local_rate_by_samples_folded_in() -> None:
    method = orlomo.OrLoMo(learning_rate=1.0, schedule="step:1,2", local_steps=1)
    server = method.server(torch.zeros(1), workers=1, epoch_samples=10)
    [assignment] = server.start()
    rates = [assignment.learning_rate]
    for index in range(5):
        report = orlomo.Report(0, index, torch.zeros(1), torch.zeros(1), samples=5)
        [assignment] = server.receive(report)
        rates.append(assignment.learning_rate)
    assert rates == pytest.approx([1.0, 1.0, 0.1, 0.1, 0.01, 0.01])


def test_a_schedule_without_the_size_of_an_epoch_is_an_error() -> None:
    with pytest.raises(orlomo.OrlomoError, match="epoch_samples"):
        orlomo.OrLoMo(schedule="step:3").server(torch.zeros(1), workers=1)
