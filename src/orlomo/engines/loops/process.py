"""The process of a worker that runs the user's own loop: from its first line to its last."""

from __future__ import annotations

import io
import multiprocessing
import os
import sys
import warnings
from multiprocessing.connection import Connection
from typing import TextIO

import torch

from orlomo.engines.loops.port import Ended, Memory, PipePort
from orlomo.engines.processes.starter import failed, send
from orlomo.errors import ConfigError, OrlomoWarning
from orlomo.loop import worker as loop
from orlomo.loop.group import GroupPort
from orlomo.loop.messages import LoopSettings
from orlomo.loop.program import Program
from orlomo.loop.rounds import RunFinished
from orlomo.seeds import derive, seed_global


def serve_loop(program: Program, settings: LoopSettings, memory: Memory, pipe: Connection) -> None:
    """The process's main function."""
    torch.set_num_threads(settings.threads)  # before anything else: it decides the bits
    # As in the user's own process: a data loader's processes would each load torch where `forkserver` starts them.
    multiprocessing.set_start_method(None, force=True)
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # with the processes that it starts, as a data loader does, it is ended as one
    if settings.rank or settings.group_rank or settings.evaluates:  # what is wrong with a program is said once
        warnings.simplefilter("ignore", OrlomoWarning)
    os.environ[loop.SERVER] = f"process {os.getppid()}"
    for name, value in settings.environment.items():
        os.environ[name] = value
    sys.stdout, sys.stderr = _Lines(sys.stdout, settings), _Lines(sys.stderr, settings)
    port = PipePort(settings, memory, pipe)
    loop.connect(port if settings.group == 1 else GroupPort(port))
    worker = loop.worker()
    # The same in all workers: what a program initialises at random, as frozen layers, is the same everywhere.
    seed_global(derive(settings.seed, "program"))
    try:
        try:
            program.run(worker)
        except RunFinished:
            pass
        except SystemExit as stop:
            if stop.code not in (None, 0):
                raise ConfigError(f"the program ended with sys.exit({stop.code!r})") from None
        if not worker.attached:
            raise ConfigError("the program ended without worker.attach(model, optimizer)")
        worker.close()
        message: object = Ended()
    except BaseException as error:
        message = failed(error)
    for stream in (sys.stdout, sys.stderr):
        stream.close()
    send(pipe, message)


class _Lines(io.TextIOBase):
    """What a worker prints, line by line, with the worker's name in front: several share one terminal."""

    def __init__(self, stream: TextIO | None, settings: LoopSettings):
        self._stream, self._part = stream, ""
        self._name = "[evaluation] " if settings.evaluates else f"[worker {settings.worker}] "

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._part = (self._part + text).split("\n")
        if lines:
            self._put("".join(f"{self._name}{line}\n" for line in lines))
        return len(text)

    def flush(self) -> None:
        """Only whole lines are written before the end: half a line would be mixed with others."""
        if self._stream is not None:
            self._stream.flush()

    def close(self) -> None:
        if self._part:
            self._put(f"{self._name}{self._part}\n")
            self._part = ""

    def fileno(self) -> int:
        if self._stream is None:
            raise OSError("there is no such file")
        return self._stream.fileno()

    def _put(self, text: str) -> None:
        if self._stream is not None:
            self._stream.write(text)
            self._stream.flush()
