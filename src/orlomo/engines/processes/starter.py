"""Starting processes, and sending them a user's task.

Processes come from a server that has torch loaded (`forkserver`): a new one is there in some milliseconds, and with
none of this process's threads and locks. Tasks are sent with cloudpickle, so lambdas and what a script or a notebook
defines can be used; large tensors go to shared memory, once, and are mapped by every process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections import ChainMap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeAlias, TypeVar

import cloudpickle
import torch
import torch.multiprocessing  # teaches ForkingPickler about tensors
from torch import Tensor

from orlomo.config import RunConfig
from orlomo.engines.memory import keep_freed_memory
from orlomo.engines.processes.fork_server import OURS, SAFE_PATH, own_place, start_server
from orlomo.errors import ConfigError
from orlomo.tasks.registry import task_of
from orlomo.tasks.task import Task
from orlomo.temporary import remove_abandoned

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

T = TypeVar("T")

SHARED_BYTES = 1 << 20
"""Tensors from this size on are shared, not copied."""

MOST_SHARED = 100
"""Each shared tensor takes a file descriptor, of which a new process can be sent some 250."""

Call: TypeAlias = tuple[Callable[..., None], tuple[object, ...]]
"""A function and its arguments."""


@dataclass(frozen=True)
class PackedTask:
    """What all processes of a run have in common. A task that has a name is made again in each process."""

    config: RunConfig
    task: Task | None  # one that only Python has

    @classmethod
    def of(cls, config: RunConfig, task: Task) -> PackedTask:
        """For processes of this machine."""
        compiled = dataclasses.replace(config, compile="on" if task.compile else "off")
        return cls(compiled, task if config.task == "custom" else None)

    def load(self) -> Task:
        """The task, in this process."""
        return task_of(self.config) if self.task is None else self.task


class Failed(NamedTuple):
    """What a process says when its code raised."""

    error: str
    traceback: str
    at: float = 0.0  # by the system's monotonic clock


def failed(error: BaseException) -> Failed:
    """What to say about this error, being handled."""
    line = (f"{type(error).__name__}: {error}".splitlines() or [""])[0]
    return Failed(line, traceback.format_exc(), time.monotonic())


class Starter:
    """Starts processes, which end with this one.

    `preload`: modules that every process will need, loaded once for all, if this is the first starter here.
    """

    def __init__(self, preload: tuple[str, ...] = ()) -> None:
        methods = multiprocessing.get_all_start_methods()
        # On systems without a fork server, processes are spawned.
        self._context: ForkServerContext | SpawnContext
        if "forkserver" not in methods:
            self._context = multiprocessing.get_context("spawn")
        else:
            self._context = multiprocessing.get_context("forkserver")
            self._context.set_forkserver_preload([f"{__package__}.evaluator", f"{__package__}.worker", *preload])
            start_server()

    def start(
        self, target: Callable[..., None], *arguments: object, daemon: bool = True
    ) -> tuple[BaseProcess, Connection]:
        """Run target(*arguments, pipe) in a new process; the process, and our end of the pipe.

        One that is no `daemon` may start processes itself, as a data loader does; it ends with this one all the same.
        An error before `target` takes over is sent through the pipe as `Failed`.
        """
        if self._context.get_start_method() == "forkserver":
            start_server()  # where it has been killed
        ours, theirs = self._context.Pipe()
        place = None if daemon else own_place()
        process = self._context.Process(target=_run, args=(_Pickled((target, arguments)), theirs, place), daemon=daemon)
        # The parent must close its copy of the child's end, or the pipe would never report that the child is gone.
        try:
            with _without_main():
                process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return process, ours


def end(process: BaseProcess, pipe: Connection) -> None:
    """End a process, whatever it does, and forget it."""
    process.kill()
    process.join()
    process.close()
    pipe.close()


def send(pipe: Connection, message: object) -> None:
    """From a process that was started here: send, or end where the parent has closed the pipe."""
    try:
        pipe.send(message)
    except OSError:
        os._exit(1)


def receive(pipe: Connection, kind: type[T]) -> T:
    """From a process that was started here: the next message, of this kind, or end where there will be none."""
    try:
        message = pipe.recv()
    except (EOFError, OSError):
        os._exit(0)
    assert isinstance(message, kind)
    return message


def _run(pickled: _Pickled, pipe: Connection, place: Path | None) -> None:
    """The main function of a process."""
    if place is not None:
        # Where multiprocessing puts the sockets and semaphores of the processes that this one may start.
        multiprocessing.current_process()._config |= {"tempdir": str(place), "semprefix": f"/{place.name}"}  # type: ignore[attr-defined]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # what is printed is seen at once, also where it is no terminal
    keep_freed_memory()
    if os.environ.get(SAFE_PATH) == OURS:
        del os.environ[SAFE_PATH]
    try:
        target, arguments = pickled.load()
    except Exception as error:
        send(pipe, failed(error))
        return
    target(*arguments, pipe)


def _end_with_the_parent() -> None:
    """Even in the middle of a round: a killed server must not leave processes behind."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():  # with the processes that it has started
        with contextlib.suppress(OSError):
            remove_abandoned()  # the parent's temporary folder
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


class _Pickled:
    """What a process calls. Pickled when the process starts, which is when memory can be shared."""

    def __init__(self, call: Call | None, content: bytes = b""):
        self._call, self._content = call, content

    def load(self) -> Call:
        call: Call = pickle.loads(self._content)  # from our own parent process
        return call

    def __reduce__(self) -> tuple[type[_Pickled], tuple[None, bytes]]:
        file = io.BytesIO()
        try:
            _Pickler(file).dump(self._call)
        except Exception as error:  # a user's object can raise anything when it is pickled
            raise ConfigError(f"this task cannot be sent to other processes: {error}") from None
        return _Pickled, (None, file.getvalue())


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    # ForkingPickler's own reducers are private, but it is through them that torch shares memory.
    dispatch_table: ClassVar[ChainMap[type, Callable[..., object]]] = ChainMap(
        ForkingPickler._extra_reducers,  # type: ignore[attr-defined]
        cloudpickle.Pickler.dispatch_table,
    )

    def __init__(self, file: io.BytesIO):
        super().__init__(file)
        self._memory: dict[int, Tensor] = {}  # by address: all bytes of the memory that tensors are views of
        self._shared = 0

    def reducer_override(self, value: object) -> object:
        """Tensors as views of their memory, which is sent once: shared if it is large, as bytes if not."""
        if type(value) is not Tensor or value.device.type != "cpu" or value.layout is not torch.strided:
            return super().reducer_override(value)
        if value.requires_grad or value.is_quantized:
            return super().reducer_override(value)
        memory = value.untyped_storage()
        whole = self._memory.get(memory.data_ptr())
        if value is whole:  # the pickler comes back with what `_view` below takes
            return self._reduce_memory(value)
        if whole is None:
            whole = self._memory[memory.data_ptr()] = torch.empty(0, dtype=torch.uint8).set_(memory)
        return _view, (whole, value.dtype, value.storage_offset(), tuple(value.shape), value.stride())

    def _reduce_memory(self, whole: Tensor) -> object:
        if whole.numel() >= SHARED_BYTES and self._shared < MOST_SHARED:
            self._shared += 1
            return NotImplemented  # torch's way: a file descriptor
        return _memory, (whole.numpy().tobytes(),)


def _view(whole: Tensor, dtype: torch.dtype, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    return torch.empty(0, dtype=dtype).set_(whole.untyped_storage(), offset, shape, stride)


def _memory(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Keep multiprocessing from running the user's script again in the new process: it needs no `__main__` guard."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
