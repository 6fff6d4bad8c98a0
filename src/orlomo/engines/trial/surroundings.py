"""What of the program around a run would change or harm it: contexts of torch, another run, open files."""

from __future__ import annotations

import io
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from orlomo.config import RunConfig
from orlomo.engines.engine import job_count
from orlomo.engines.registry import facts_of
from orlomo.errors import ConfigError, OrlomoError, require
from orlomo.tasks.task import Task

_lock = threading.Lock()
_running: int | None = None
"""The process in which a run is under way: a forked one has a copy of this and runs nothing yet."""

HANDLES = ("h5py", "zipfile", "tarfile", "sqlite3", "lmdb", "netCDF4")
"""Packages whose objects hold a file open."""


@contextmanager
def only_run() -> Iterator[None]:
    """One run at a time in a process, with gradients, outside of torch's contexts that would change it."""
    global _running
    _check_contexts()
    with _lock:
        if _running == os.getpid():
            # Generators, the number of threads and the user's own objects are the process's: two runs would mix them.
            raise OrlomoError(
                "another run is under way in this process: wait for its end, or train in another process (two runs "
                "would draw from the same random generators)"
            )
        _running = os.getpid()
    try:
        with torch.enable_grad():  # the caller may be under torch.no_grad()
            yield
    finally:
        _running = None


def _check_contexts() -> None:
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            raise ConfigError(
                f"torch.autocast({device!r}) is on around the run, which would train nothing or train wrongly: take "
                'the run out of the `with` block and write Task(autocast="bfloat16")'
            )
    if torch.is_inference_mode_enabled():
        raise ConfigError("torch.inference_mode() is on around the run: take the run out of the `with` block")
    default = str(torch.get_default_device())
    if default != "cpu":
        raise ConfigError(
            f"torch's default device is {default}, which does not reach workers: take torch.set_default_device away "
            f"and give the run device={default!r}"
        )


def check_surroundings(config: RunConfig, task: Task) -> None:
    """Refuse what does not reach workers in other processes."""
    if config.clock == "virtual":
        return
    require(
        not multiprocessing.current_process().daemon,
        f"this is a daemon process, which may not start others, as the engine {config.engine} does: start it with "
        'daemon=False, or use engine="simulated"',
    )
    dtype = torch.get_default_dtype()
    require(
        dtype == torch.float32,
        f"torch's default dtype is {dtype}, which does not reach workers: take torch.set_default_dtype away and "
        f"give the model and the data that dtype (model.to({dtype}))",
    )
    # A named task is made in each worker again, unless workers are on other machines, where its file may not be.
    elsewhere = "resources" in facts_of(config.engine).settings
    if config.task == "custom" or elsewhere:
        for name, kind in _open_files(task, pickled=True):
            raise ConfigError(
                f"{name} is an open file ({kind}), which cannot be sent to workers: open it in __getitem__ when it is "
                "first needed, or leave it out in __getstate__"
            )


def jobs_for(config: RunConfig, task: Task, jobs: int | None, warn: Callable[[str], None]) -> int:
    """How many processes compute rounds in the simulator: as asked for, or one where several would be wrong."""
    count = job_count(jobs)
    if count == 1 or config.clock != "virtual":
        return count
    if multiprocessing.current_process().daemon:
        if jobs is not None:
            warn(f"this is a daemon process, which may not start others: computing in this one, not on {jobs} jobs")
        return 1
    for name, kind in _open_files(task):
        # Forked processes share a file's position: each would read where another has moved it to.
        warn(f"{name} is an open file ({kind}), which several jobs would share: computing on one (jobs=1)")
        return 1
    return count


def _open_files(task: Task, pickled: bool = False) -> Iterator[tuple[str, str]]:
    """The attributes of data sets that are open files; `pickled`: only those that are sent."""
    for label, data in {"train_data": task.train_data, **task.test_sets}.items():
        for name, value in _attributes(data, label, pickled):
            kind = type(value)
            in_memory = isinstance(value, (io.BytesIO, io.StringIO))
            is_file = isinstance(value, io.IOBase) and not in_memory
            if is_file or kind.__module__.partition(".")[0] in HANDLES:
                yield name, f"{kind.__module__}.{kind.__name__}".removeprefix("_io.")


def _attributes(owner: object, label: str, pickled: bool, depth: int = 3) -> Iterator[tuple[str, object]]:
    """The attributes of an object and of the objects in them, by their names."""
    if pickled and any("__getstate__" in vars(kind) or "__reduce__" in vars(kind) for kind in type(owner).__mro__[:-1]):
        return  # it says itself what is sent
    for name, value in getattr(owner, "__dict__", {}).items():
        yield f"{label}.{name}", value
        if depth > 1 and not isinstance(value, (torch.Tensor, type)) and not callable(value):
            yield from _attributes(value, f"{label}.{name}", pickled, depth - 1)
