"""A worker of a user's loop on a Ray cluster: an actor that starts the worker's process on its machine, and stands
between it and the server."""

from __future__ import annotations

import dataclasses
import multiprocessing.connection
import os
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import cloudpickle
import numpy as np
import ray
from numpy.typing import NDArray
from torch import Tensor

from orlomo.engines.loops.opening import PRELOADED
from orlomo.engines.loops.port import Come, Ended, Memory, Placed
from orlomo.engines.loops.process import serve_loop
from orlomo.engines.loops.processes import LoopProcesses
from orlomo.engines.processes.fork_server import remove_place
from orlomo.engines.processes.starter import Starter, failed, send
from orlomo.engines.processes.worker import SlotReport
from orlomo.engines.ray.worker import Array, Where, end_with_the_parent, view, where
from orlomo.engines.slots import Slot
from orlomo.errors import ConfigError
from orlomo.loading import is_import_path
from orlomo.loop.messages import LoopSettings
from orlomo.loop.program import Program


class Heard(NamedTuple):
    """What a worker's process says, and the vectors and buffers that belong to it."""

    message: object
    vectors: dict[str, Array]
    buffers: Array | None = None


class LoopHost:
    """The actor. Every call but the first returns what the process says next: at its end `Ended` or `Failed`."""

    def __init__(self, settings: LoopSettings):
        threading.Thread(target=end_with_the_parent, args=(os.getppid(),), daemon=True).start()
        self.settings = settings
        self._slot: Slot | None = None

    def where(self) -> Where:
        """Called first: returns as soon as Ray has found room for the actor."""
        return where()

    def start(self, pickled_program: NDArray[np.uint8], root: str) -> Heard:
        """Start the process; `root`: the folder of the server's machine that the current one is a copy of, if it is."""
        has_copy = bool(ray.get_runtime_context().runtime_env.get("working_dir"))
        try:
            # As a tensor, which the process maps: the program may have its data with it.
            program = view(pickled_program), root if has_copy else ""
            self._processes = LoopProcesses(Starter(PRELOADED), program, self.settings, _serve)
        except Exception as error:
            return Heard(failed(error), {})
        return self.listen()

    def tell(self, message: object, names: tuple[str, ...], buffers: Array | None, *vectors: Array) -> Heard:
        """Hand a message to the process, its vectors first."""
        if isinstance(message, Come):
            self._slot = self._processes.memory.slot(message.shape, create=True)
        assert self._slot is not None
        for name, vector in zip(names, vectors, strict=True):
            self._slot.assignment[name].copy_(view(vector))
        if buffers is not None:
            self._slot.buffers.copy_(view(buffers))
        self._processes.send(message)
        return self.listen()

    def listen(self) -> Heard:
        """What the process says next."""
        processes, slot, message = self._processes, self._slot, None
        while message is None:
            multiprocessing.connection.wait(processes.handles)
            try:
                message = processes.receive()
            except EOFError:
                message = Ended() if processes.ended else processes.failure()
                processes.end()
                remove_place()  # here, because Ray kills this process
        if isinstance(message, Placed) and slot is not None:
            return Heard(message, _arrays({"params": slot.assignment["params"]}), _bytes(slot))
        if isinstance(message, SlotReport) and slot is not None:
            return Heard(message, _arrays(slot.report), _bytes(slot))
        return Heard(message, {})


def _arrays(vectors: dict[str, Tensor]) -> dict[str, Array]:
    # Views of the memory: Ray copies them into its object store before the process continues.
    return {name: vector.numpy() for name, vector in vectors.items()}


def _bytes(slot: Slot) -> Array | None:
    return slot.buffers.numpy() if slot.shape.buffers else None


def _serve(sent: tuple[Tensor, str], settings: LoopSettings, memory: Memory, pipe: Connection) -> None:
    """The main function of a process of the worker."""
    pickled, root = sent
    try:
        try:
            # It comes from our own driver, by way of Ray, which itself speaks pickle.
            program: Program = cloudpickle.loads(pickled.numpy())
        except ImportError as error:
            raise ConfigError(f"{error}, on the machine of worker {settings.worker}: {HINT}") from None
        program = found_here(program, root)
    except Exception as error:
        send(pipe, failed(error))
        return
    serve_loop(program, settings, memory, pipe)


HINT = '--runtime-env \'{"working_dir": "."}\' copies this folder to every machine (see docs/how-to/ray.md)'


def found_here(program: Program, root: str) -> Program:
    """The program on this machine. `root`: the folder of which the current one is a copy; empty: it is none."""
    here, name = Path.cwd(), Path(program.name)
    if root:
        if name.is_relative_to(root):
            name = here / name.relative_to(root)
        program = dataclasses.replace(program, name=str(name), directory=str(here))
    elif program.directory and not Path(program.directory).is_dir():
        program = dataclasses.replace(program, directory="")
    if program.function is None and not is_import_path(program.name) and not name.is_file():
        how = (
            f"the working_dir of --runtime-env has no {name.relative_to(here)}"
            if root and name.is_relative_to(here)
            else HINT
        )
        raise ConfigError(f"the script {name} is not on the machine of one of the workers: {how}")
    return program
