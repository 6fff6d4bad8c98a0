"""Golden histories: the parameters after each report, from constant gradients, for every method.

The files in golden/ were checked by hand for the first reports; `pytest --regenerate-golden` writes them again.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import orlomo
from orlomo.methods.messages import WorkerState
from orlomo.methods.registry import METHODS

GOLDEN = Path(__file__).parent / "golden"
GRADIENT = [1.0, -2.0, 0.5]
ARRIVALS = [0, 1, 2, 0, 0, 1, 0, 2, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 1, 2, 0, 1]


def history(name: str) -> list[dict[str, object]]:
    """w, u and the weights after each report that could arrive, learning rate dropped on the way."""
    method = orlomo.method(name, learning_rate=0.125, schedule="step:10", **_local_steps(name))
    workers = method.max_workers or 3
    server = method.server(torch.zeros(3, dtype=torch.float64), workers, epoch_samples=2)
    held = {assignment.worker: assignment for assignment in server.start()}
    states: dict[int, WorkerState] = {}
    rows: list[dict[str, object]] = []
    for arrival in ARRIVALS:
        worker = arrival % workers
        if worker not in held:
            continue  # it waits at a barrier
        assignment = held.pop(worker)
        rule = method.worker(torch.empty(3, dtype=torch.float64))
        rule.state = states.setdefault(worker, method.worker_state(server.params))
        rule.start(assignment)
        for _ in range(assignment.local_steps):
            rule.step(torch.tensor(GRADIENT, dtype=torch.float64))
        held |= {a.worker: a for a in server.receive(rule.finish(samples=1))}
        fold = server.last_fold
        assert fold is not None
        rows.append(
            {
                "worker": worker,
                "index": fold.index,
                "delay": fold.delay,
                "eta": fold.eta,
                "learning_rate": assignment.learning_rate,
                "params": server.params.tolist(),
                "momentum": None if server.momentum is None else server.momentum.tolist(),
            }
        )
    return rows


def _local_steps(name: str) -> dict[str, int]:
    return {} if name in ("asgd", "ormo-da") else {"local_steps": 3}


@pytest.mark.parametrize("name", sorted(METHODS))
def test_golden_history(name: str, request: pytest.FixtureRequest) -> None:
    path = GOLDEN / f"{name}.json"
    rows = history(name)
    if request.config.getoption("--regenerate-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(rows, indent=1) + "\n")
    golden = json.loads(path.read_text())
    assert len(rows) == len(golden)
    for row, expected in zip(rows, golden, strict=True):
        assert row.keys() == expected.keys()
        for key, value in row.items():
            assert value == expected[key] or value == pytest.approx(expected[key], rel=1e-12, abs=1e-12)


def test_first_reports_by_hand() -> None:
    """With beta = 0.9, gamma = 1/8, S = 3 and g = 1: u = (1 + .9 + .81)/8, Delta w = (1 + 1.9 + 2.71)/8."""
    u, delta = 2.71 / 8, 5.61 / 8
    rows = history("orlomo")
    eta = 1 / 3
    assert rows[0]["params"][0] == pytest.approx(-eta * delta)  # type: ignore[index]
    assert rows[0]["momentum"][0] == pytest.approx(eta * u)  # type: ignore[index]
    # t=1 opens group 1: w -= beta u, u *= beta; then a report of group 0 arrives, one group behind.
    w1 = -eta * delta - 0.9 * eta * u - eta * delta - 0.9 * eta * u
    assert rows[1]["params"][0] == pytest.approx(w1)  # type: ignore[index]
    assert rows[1]["momentum"][0] == pytest.approx(0.9 * eta * u + 0.9 * eta * u)  # type: ignore[index]
    plain = history("al-sgd")
    assert plain[1]["params"][0] == pytest.approx(-2 * eta * 3 / 8)  # type: ignore[index]
    together = history("prsgdm")
    assert [row["params"][0] for row in together[:2]] == [0.0, 0.0]  # type: ignore[index]
    assert together[2]["params"][0] == pytest.approx(-delta)  # type: ignore[index]
