"""A group of processes as one worker: DDP and FSDP2 on gloo, and ranks that die, raise, or go their own way."""

from __future__ import annotations

import os
import signal
from multiprocessing.connection import wait
from pathlib import Path

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import orlomo
from orlomo.config import RunConfig
from orlomo.config import from_table as config_from
from orlomo.engines.loops.live import visible
from orlomo.engines.loops.processes import LoopProcesses, variables
from orlomo.engines.processes.starter import Starter
from orlomo.errors import ConfigError, OrlomoError
from orlomo.loop.attached import Attached
from orlomo.loop.messages import LoopSettings
from orlomo.loop.program import Program
from orlomo.records.audit import audit

SAMPLES, BATCH = 96, 2


def ddp(model: nn.Module) -> nn.Module:
    return DistributedDataParallel(model)


def fsdp(model: nn.Module) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model[0], mesh=mesh)
    return fully_shard(model, mesh=mesh)


def bare(model: nn.Module) -> nn.Module:
    return model


class Loop:
    """The usual lines of a loop with DDP or FSDP; `after` is called with the worker and the number of each batch."""

    def __init__(self, wrap, folder: Path | None = None, batch=BATCH, epochs=2, momentum=0.9, after=None):
        self.wrap, self.folder, self.batch, self.epochs = wrap, folder, batch, epochs
        self.momentum, self.after = momentum, after

    def __call__(self, worker: orlomo.Worker) -> None:
        if "RANK" in os.environ:
            dist.init_process_group("gloo")
        torch.manual_seed(3)
        inputs = torch.randn(SAMPLES, 5, dtype=torch.float64)
        data = TensorDataset(inputs, inputs @ torch.linspace(-1, 1, 5, dtype=torch.float64).unsqueeze(1))
        bare = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3, momentum=0.0), nn.Linear(3, 1)).double()
        bare[1].eval()  # its statistics would be those of a rank's part of a batch
        model = self.wrap(bare)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=self.momentum)
        loader = DataLoader(data, batch_size=self.batch, shuffle=True)
        number = 0
        with worker.attach(model, optimizer, evaluate=lambda: functional.mse_loss(model(inputs), data.tensors[1])):
            for _ in worker.epochs(self.epochs):
                for x, y in worker.batches(loader):
                    optimizer.zero_grad()
                    functional.mse_loss(model(x), y).backward()
                    if self.after is None or self.after(worker, number):
                        optimizer.step()
                    number += 1
        if self.folder is not None:
            parts = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
            name = "chief" if worker.chief else f"{worker.id}-{os.environ.get('RANK')}"
            torch.save(torch.cat([p.detach().flatten() for p in parts]), self.folder / f"{name}.pt")


def launch(loop, folder: Path, method: str, group=2, workers=2, said: list[str] | None = None) -> orlomo.Run:
    made = orlomo.method(method, local_steps=4)
    warn = (lambda text: None) if said is None else said.append
    return orlomo.launch(loop, made, workers=workers, group=group, out=folder, threads=1, warn=warn)


def dies(worker: orlomo.Worker, number: int) -> bool:
    """Of each of the first two groups one rank, in its first round: the run cannot end without it."""
    if (worker.id, dist.get_rank()) in ((0, 1), (1, 0)) and number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return True


def test_a_group_does_what_one_process_does_with_its_whole_batch(tmp_path):
    """With a method that waits for all workers, so that the order of reports does not matter."""
    single = launch(Loop(bare, batch=2 * BATCH), tmp_path / "single", "prsgdm", group=1)
    run = launch(Loop(ddp, tmp_path), tmp_path / "run", "prsgdm")
    torch.testing.assert_close(run.params, single.params, rtol=1e-12, atol=1e-13)
    assert run.metrics["value"].tolist() == pytest.approx(single.metrics["value"].tolist(), rel=1e-10)
    assert list(run.rounds["samples"]) == list(single.rounds["samples"])
    vectors = {path.stem: torch.load(path) for path in tmp_path.glob("*.pt")}
    assert len(vectors) == 4, vectors
    assert "chief" in vectors
    assert all(vector.equal(run.params) for vector in vectors.values())


@pytest.mark.parametrize(("wrap", "method"), [(ddp, "orlomo"), (fsdp, "local-ormo-da")])
def test_one_rank_dies_and_the_group_is_replaced(tmp_path, wrap, method):
    said: list[str] = []
    loop = Loop(wrap, tmp_path, momentum=0.9 if wrap is ddp else 0, after=dies)
    run = launch(loop, tmp_path / "run", method, said=said)
    found = audit(run)
    assert found.ok, found.text
    assert list(run.events["kind"]).count("crash") == 2
    lost = sorted(text for text in said if "is lost" in text)
    assert lost == [f"worker {w} is lost: rank {1 - w} of its group: killed by SIGKILL" for w in (0, 1)], said
    vectors = {path.stem: torch.load(path) for path in tmp_path.glob("*.pt")}
    assert len(vectors) in (2, 4), vectors  # of groups that come too late there is nothing
    assert all(vector.equal(run.params) for vector in vectors.values())
    values = run.metrics["value"].tolist()
    assert values[-1] < values[0], values
    if wrap is ddp:
        loop.after = None
        assert orlomo.replay(run.folder, task=loop).agrees


def test_momentum_of_sharded_parameters_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"orlomo exchanges momentum, .* with fully_shard use local-ormo-da"):
        launch(Loop(fsdp), tmp_path / "run", "orlomo", workers=1)


def raises(worker: orlomo.Worker, number: int) -> bool:
    if dist.get_rank() == 1 and number == 1:
        raise ValueError("this rank has no more")
    return True


def skips(worker: orlomo.Worker, number: int) -> bool:
    return not (dist.get_rank() == 1 and number == 1)


@pytest.mark.parametrize(
    ("loop", "message"),
    [
        (Loop(ddp, after=raises), "rank 1 of its group: ValueError: this rank has no more"),
        (Loop(ddp, after=skips), "rank 1 ended a round with steps = 3, rank 0 with 4"),
        (Loop(bare), "other parameters than one another after a round: wrap the model"),
    ],
)
def test_ranks_that_do_not_train_together(tmp_path, loop, message):
    with pytest.raises(OrlomoError, match=message):
        launch(loop, tmp_path / "run", "orlomo", workers=1)
    if loop.after is raises:
        assert 'raise ValueError("this rank has no more")' in (tmp_path / "run" / "log.txt").read_text()


def exits(worker: orlomo.Worker) -> None:
    """Rank 1 ends without a word, and rank 0 finds that out."""
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == 1:
        os._exit(3)
    dist.barrier()


def test_the_rank_that_ended_first_is_named():
    settings = LoopSettings(0, 0, orlomo.method("orlomo"), seed=0, group=2)
    processes = LoopProcesses(Starter(), Program("custom", function=exits), settings)
    try:
        with pytest.raises(EOFError):  # noqa: PT012
            while wait(processes.handles, 60):
                processes.receive()
        assert processes.failure().error == "rank 1 of its group: ended with exit code 3"
    finally:
        processes.end()


def test_without_a_process_group(tmp_path):
    def loop(worker):
        model = nn.Linear(2, 1)
        worker.attach(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))

    with pytest.raises(
        ConfigError, match=r"group of 2 processes: call torch.distributed.init_process_group\(\) before"
    ):
        launch(loop, tmp_path / "run", "orlomo", workers=1)


KNOWN = {"task": "a.py", "directory": "/", "method": {"name": "orlomo"}, "engine": "processes"}


def test_each_process_of_a_group_has_a_gpu_of_its_own():
    def config(**more: object) -> RunConfig:
        return config_from({**KNOWN, **more}, "a test")

    four = config(group=2, devices=["cuda:0", "cuda:1", "cuda:2", "cuda:3"])
    assert [visible(four, rank)["CUDA_VISIBLE_DEVICES"] for rank in range(3)] == ["0,1", "2,3", "0,1"]
    with pytest.raises(ConfigError, match="a GPU of its own"):
        visible(config(group=2, devices=["cuda:0"]), 0)
    assert visible(config(devices=["cuda:3"]), 0) == {"CUDA_VISIBLE_DEVICES": "3"}
    assert visible(config(group=2), 0) == {}


def test_variables_are_torchruns():
    found = variables(1, 4, 1234)
    assert (found["RANK"], found["LOCAL_RANK"], found["WORLD_SIZE"], found["MASTER_PORT"]) == ("1", "1", "4", "1234")


@pytest.fixture
def one_rank():
    """This process as a group of its own."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
def test_a_sharded_model_computes_with_what_was_loaded_last():
    """A module that was called without a backward pass keeps what it has gathered, which is old by then."""
    model = fsdp(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)))
    attached = Attached(model, torch.optim.AdamW(model.parameters(), lr=0.1), orlomo.method("al-sgd"))
    x, size = torch.ones(1, 3), attached.facts.parameters
    attached.load({"params": torch.full((size,), 2.0)}, clock=0, epoch=0)
    with torch.no_grad():
        own = model(x).item()
        with attached.loaded(torch.ones(size)):
            assert model(x).item() == 2 * (3 + 1) + 1
        assert model(x).item() == own == 2 * 2 * (2 * 3 + 2) + 2
        attached.finish(torch.zeros(size), None, 0, 0)
        assert model(x).item() == 0
    assert attached.vector().equal(torch.zeros(size))


@pytest.mark.usefixtures("one_rank")
@pytest.mark.filterwarnings("ignore:FSDP")
def test_the_older_fsdp_is_refused():
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(nn.Linear(3, 2), device_id=torch.device("cpu"))
    with pytest.raises(ConfigError, match=r"FullyShardedDataParallel, .* use fully_shard\(model\)"):
        Attached(model, torch.optim.SGD(model.parameters(), lr=0.1), orlomo.method("al-sgd"))
