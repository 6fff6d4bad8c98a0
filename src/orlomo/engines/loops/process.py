"""The process of a worker that runs a loop of the user's own: from its first line to its last."""

from __future__ import annotations

import io
import os
import sys
import warnings
from multiprocessing.connection import Connection

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
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # with the processes that it starts, as a data loader does, it is ended as one
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # line by line, or the lines of several workers would be mixed
            stream.reconfigure(line_buffering=True, write_through=False)
    if settings.rank or settings.group_rank or settings.evaluates:  # what is wrong with a program is said once
        warnings.simplefilter("ignore", OrlomoWarning)
    os.environ[loop.SERVER] = f"process {os.getppid()}"
    for name, value in settings.environment.items():
        os.environ[name] = value
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
        if stream is not None:
            stream.flush()
    send(pipe, message)
