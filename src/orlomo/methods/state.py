"""What a server keeps: vectors and numbers by name. All of it is in every checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from orlomo.errors import ConfigError
from orlomo.methods.messages import Report

CHUNK = 1 << 18
"""Elements an update handles at a time: few enough to stay in cache, so many that Python's share is small."""

_ROW_BYTES = 8192
"""What `fingerprint` sums up in columns of 8 bytes."""

Layout = Mapping[str, slice]
"""Where each of the model's tensors is in a flat vector, by its name in the module."""


class ServerState:
    """The vectors that a method declares in `server_vectors`, its `server_numbers`, and the model's layout.

    `vectors["params"]` is w_t. `layout` says which part of a vector belongs to which tensor of the model; it is empty
    if the server was created from a plain vector.

    >>> state = ServerState({"params": torch.ones(4)}, {"count": 0.0}, {"weight": slice(0, 3), "bias": slice(3, 4)})
    >>> for [w] in state.chunks("params"):
    ...     _ = w.mul_(2)
    >>> state.vectors["params"][state.layout["bias"]]
    tensor([2.])
    """

    def __init__(self, vectors: dict[str, Tensor], numbers: dict[str, float], layout: Layout | None = None):
        self.vectors, self.numbers, self.layout = vectors, numbers, layout or {}
        self._answers: dict[str, list[Tensor]] = {}  # server's name -> where its new value is wanted, too
        self._answered: dict[str, int] = {}  # those that one pass has copied whole, and their version then

    @property
    def params(self) -> Tensor:
        """w_t."""
        return self.vectors["params"]

    def chunks(self, *names: str, report: Report | None = None) -> Iterator[tuple[Tensor, ...]]:
        """These vectors, followed by those of the report, piece by piece.

        Several operations on a piece that stays in cache are one pass over memory. On an accelerator the whole vectors
        are one piece. A report's vectors come in the order in which the method declares them.
        """
        vectors = [self._vector(name) for name in names] + ([] if report is None else list(report.vectors.values()))
        # On an accelerator each operation is a kernel launch: whole vectors are fastest there.
        size = CHUNK if self.params.device.type == "cpu" else max(1, self.params.numel())
        pieces = zip(*(torch.split(vector, size) for vector in vectors), strict=True)
        # Where the answer to a report is wanted, it gets each piece as soon as that is done, in the same pass.
        copied = [(names.index(name), name, targets) for name, targets in self._answers.items() if name in names]
        if not copied:
            yield from pieces
            return
        targets = [(position, [torch.split(target, size) for target in wanted]) for position, _, wanted in copied]
        for number, parts in enumerate(pieces):
            yield parts
            for position, wanted in targets:
                for target in wanted:
                    target[number].copy_(parts[position])
        for _, name, _ in copied:
            # torch counts in-place changes: a later change makes the copy stale, and `answered` leaves it out.
            self._answered[name] = self.vectors[name]._version

    def _vector(self, name: str) -> Tensor:
        if name not in self.vectors:
            known = ", ".join(self.vectors)
            raise ConfigError(f"the method folds {name!r}, which server_vectors does not declare (declared: {known})")
        return self.vectors[name]

    def answer_into(self, targets: Mapping[str, Sequence[Tensor]]) -> None:
        """From now on passes over these vectors copy them there."""
        self._answers, self._answered = {name: list(wanted) for name, wanted in targets.items()}, {}

    def answered(self) -> set[str]:
        """Ends that; the vectors whose copies are whole and have not been changed since."""
        done = {name for name, version in self._answered.items() if self.vectors[name]._version == version}
        self._answers, self._answered = {}, {}
        return done


def plain_numbers(method: str, found: Mapping[str, float], declared: Mapping[str, float]) -> dict[str, float]:
    """The numbers that a method keeps, as a checkpoint can hold them; an error where they are not those declared."""
    if set(found) != set(declared):
        raise ConfigError(f"{method} keeps the numbers {sorted(found)}, but declares {sorted(declared)}")
    for name, value in found.items():
        if type(value) not in (int, float):
            raise ConfigError(f"{method}: the number {name!r} is a {type(value).__name__}: make it a float or an int")
    return dict(found)


def all_finite(vector: Tensor) -> bool:
    """Whether every element is a finite number; one read of the vector, no temporary of its size."""
    if vector.numel() == 0:
        return True
    smallest, largest = torch.aminmax(vector)  # both are NaN where any element is
    return bool(torch.isfinite(smallest) & torch.isfinite(largest))


def fingerprint(vectors: Iterable[Tensor]) -> str:
    """A short checksum of the bits of these vectors, which are in main memory; much faster than a hash.

    Equal bits give equal checksums; other bits almost surely others, by accident and not by intent.

    >>> import torch
    >>> fingerprint([torch.zeros(3)]) == fingerprint([torch.zeros(3)]) != fingerprint([torch.ones(3)])
    True
    """
    digest = hashlib.blake2b(digest_size=8)
    for vector in vectors:
        content = vector.detach().contiguous().view(torch.uint8).numpy()
        whole = len(content) - len(content) % _ROW_BYTES
        # Sums of whole numbers, which wrap around: the same in any order of adding.
        rows = content[:whole].view(np.int64).reshape(-1, _ROW_BYTES // 8)
        digest.update(np.add.reduce(rows, axis=0).tobytes())
        digest.update(content[whole:].tobytes())
    return digest.hexdigest()
