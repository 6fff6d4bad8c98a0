"""What a server refuses, what it shares, what it saves."""

from __future__ import annotations

import pytest
import torch
from arrivals import Drive, close

import orlomo
from orlomo.methods.registry import METHODS
from orlomo.methods.state import CHUNK

NAMES = sorted(METHODS)


def make(name: str) -> Drive:
    return Drive(orlomo.method(name), workers=1 if name == "msgd" else 3)


def state_of(server: orlomo.Server) -> tuple[object, ...]:
    vectors = {name: vector.clone().tolist() for name, vector in server.state.vectors.items()}
    return vectors, server.ledger.state_dict()


@pytest.mark.parametrize("name", NAMES)
def test_bad_reports_are_refused_and_change_nothing(name: str) -> None:
    drive = make(name)
    drive.arrive(0)
    if name in ("prsgdm", "local-sgd"):
        drive.arrive(1)
        drive.arrive(2)
    good = drive.report(0)
    before = state_of(drive.server)

    def changed(**fields: object) -> orlomo.Report:
        kept = {name: getattr(good, name) for name in ("worker", "index", "samples", "loss", "round")}
        deltas = {"delta_params": good.delta_params, "delta_momentum": good.delta_momentum}
        return orlomo.Report(**{**kept, **deltas, **fields})

    wrong = torch.full((3,), 1.0, dtype=torch.float64)
    infinite, nan = wrong.clone(), wrong.clone()
    infinite[1], nan[2] = -torch.inf, torch.nan
    cases = [
        (changed(worker=99), "unknown", "worker 99"),
        (changed(index=good.index + 1), "unknown", "unknown report"),
        (changed(round=good.round + 5), "unknown", "unknown report"),
        (changed(index=0, round=None), "folded", "already folded in"),
        (changed(delta_params=wrong[:2]), "length", r"\(2,\)"),
        (changed(delta_params=wrong.float()), "length", "float32"),
        (changed(delta_params=infinite), "finite", "not finite"),
        (changed(delta_params=nan), "finite", "delta_params of worker 0"),
    ]
    if good.delta_momentum is not None:
        cases += [
            (changed(delta_momentum=nan), "finite", "delta_momentum"),
            (changed(delta_momentum=None), "length", "no delta_momentum"),
        ]
    for report, reason, text in cases:
        with pytest.raises(orlomo.ReportRefused, match=text) as refusal:
            drive.server.receive(report)
        assert refusal.value.reason == reason
        assert state_of(drive.server) == before
    drive.server.receive(good)
    with pytest.raises(orlomo.ReportRefused, match="already folded in"):
        drive.server.receive(good)
    if drive.method.max_workers != 1:
        late = drive.report(1)
        drive.leave(1)
        drive.join(1)  # and holds its next round, or waits for it
        with pytest.raises(orlomo.ReportRefused, match=r"round \d of worker 1 is over") as refusal:
            drive.server.receive(late)
        assert refusal.value.reason == "over"


@pytest.mark.parametrize("name", NAMES)
def test_saved_and_loaded_it_goes_on_the_same(name: str) -> None:
    drive, other = make(name), make(name)
    order = [0] * 6 if name == "msgd" else [0, 1, 2, 2, 0, 1]
    for worker in order[:4]:
        if worker in drive.held:
            drive.arrive(worker)
    other.server.load_state_dict(drive.server.state_dict())
    other.held = dict(drive.held)
    other.source.set_state(drive.source.get_state())
    for worker in order[4:]:
        if worker in drive.held:
            assert torch.equal(drive.arrive(worker).params, other.arrive(worker).params)
    assert state_of(drive.server) == state_of(other.server)


def test_a_state_that_does_not_fit_is_refused() -> None:
    server = orlomo.OrLoMo().server(torch.zeros(3), workers=2)
    other = orlomo.OrLoMo().server(torch.zeros(4), workers=2)
    with pytest.raises(orlomo.OrlomoError, match="does not fit"):
        server.load_state_dict(other.state_dict())


def test_assignments_share_one_snapshot_that_later_reports_do_not_change() -> None:
    drive = Drive(orlomo.OrLoMo(local_steps=1), workers=4)
    vectors = {id(assignment.params) for assignment in drive.held.values()}
    assert len(vectors) == 1
    before = drive.held[3].params.clone()
    drive.arrive(0)
    assert torch.equal(drive.held[3].params, before)
    assert not close(drive.server.params, before)


@pytest.mark.parametrize("name", NAMES)
def test_an_update_of_many_chunks_is_the_update_of_each(name: str) -> None:
    """A vector longer than a chunk gives, element by element, what a short one gives."""
    size = 2 * CHUNK + 7
    method = orlomo.method(name)
    workers = 1 if name == "msgd" else 2
    long, short = method.server(torch.zeros(size), workers), method.server(torch.zeros(3), workers)
    positions = torch.tensor([0, CHUNK, size - 1])
    source = torch.Generator().manual_seed(0)
    long.start(), short.start()
    for worker in (0, 1, 0, 1, 0) * 3 if workers == 2 else (0, 0, 0):
        if worker not in long.ledger.outstanding:
            continue
        index = long.ledger.outstanding[worker].index
        delta, momentum = torch.randn(2, size, generator=source)
        vectors = dict(zip(method.report_vectors, (delta, momentum), strict=False))
        long.receive(orlomo.Report(worker, index, vectors=vectors))
        short.receive(orlomo.Report(worker, index, vectors={name: v[positions] for name, v in vectors.items()}))
    assert torch.allclose(long.params[positions], short.params, rtol=1e-6)
    assert long.params.abs().sum() > 0


def test_the_update_makes_no_temporary_of_the_parameters_size() -> None:
    from torch.profiler import ProfilerActivity, profile

    size = 1 << 20
    server = orlomo.OrLoMo().server(torch.zeros(size), workers=2)
    server.start()
    report = orlomo.Report(0, 0, torch.ones(size), torch.ones(size))
    step = server.ledger.receive(0, 0)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler, torch.no_grad():
        server.method.fold(server.state, step.fold, report)
    largest = max((abs(event.self_cpu_memory_usage) for event in profiler.events()), default=0)
    assert largest < 4 * size // 16
