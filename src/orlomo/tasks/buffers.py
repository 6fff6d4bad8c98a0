"""What becomes of a model's buffers between rounds and in the model that is evaluated: a policy for each.

Buffers that workers report are one vector of bytes, whatever their types (`Encoding`). Frozen parameters that the model
changes itself (a teacher's, a momentum encoder's) are treated as buffers where a policy is given for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from orlomo.errors import ConfigError, require, unknown_name
from orlomo.flat import Buffer, FlatModule

RECALIBRATE, AVERAGE, KEEP, RESET = POLICIES = ("recalibrate", "average", "keep", "reset")
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")

Policies = str | Mapping[str, str]
"""One policy for all buffers, or policies by patterns of their names."""


def checked_policies(given: object) -> Policies:
    """What a task was given, with every policy known."""
    kinds = isinstance(given, (str, Mapping))
    require(kinds, f"buffers must be a policy or a table from name patterns to policies, not {given!r}")
    assert isinstance(given, (str, Mapping))
    for name in [given] if isinstance(given, str) else given.values():
        if name not in POLICIES:
            raise unknown_name("policy for buffers", name, POLICIES)
    require(
        isinstance(given, str) or all(isinstance(key, str) for key in given),
        f"buffers: a name pattern must be a string, as in {{'*.queue': 'keep'}}, not {given!r}",
    )
    return given if isinstance(given, str) else dict(given)


def first_match(policies: Policies, name: str) -> str | None:
    """The pattern that says what becomes of this buffer; None where none does."""
    patterns = () if isinstance(policies, str) else policies
    return next((pattern for pattern in patterns if fnmatchcase(name, pattern)), None)


class Part(NamedTuple):
    """One reported buffer, and where it is in the vector of bytes."""

    buffer: str
    policy: str
    dtype: torch.dtype
    shape: torch.Size
    first: int
    last: int

    def of(self, values: Tensor) -> Tensor:
        """Its value, flat, as a view."""
        return values[self.first : self.last].view(self.dtype)


class Encoding:
    """Reported buffers as one vector of bytes: first those that can be averaged, then the others.

    A part begins at a multiple of its type's size. Floating-point buffers of one type thus follow one another without
    gaps, as one vector of that type would be.
    """

    def __init__(self, reported: Sequence[tuple[str, str, Tensor]]):
        self.parts: list[Part] = []
        end = 0
        for name, policy, like in sorted(reported, key=lambda one: not one[2].is_floating_point()):
            first = -(-end // like.itemsize) * like.itemsize
            end = first + like.numel() * like.itemsize
            self.parts.append(Part(name, policy, like.dtype, like.shape, first, end))
        self.bytes = end
        self.keeps = any(part.policy == KEEP for part in self.parts)

    def encode(self, values: Sequence[Tensor]) -> Tensor:
        """The bytes of these, one for each part."""
        pieces: list[Tensor] = []
        end = 0
        for part, value in zip(self.parts, values, strict=True):
            if part.first > end:
                pieces.append(torch.zeros(part.first - end, dtype=torch.uint8, device=value.device))
            pieces.append(value.to(part.dtype).flatten().view(torch.uint8))
            end = part.last
        return torch.cat(pieces)

    def combine(self, reports: Sequence[Tensor], newest: Tensor) -> Tensor:
        """Floating-point buffers as the mean over these reports, all others from the newest."""
        floats = [part for part in self.parts if part.dtype.is_floating_point]
        others = [part.of(newest) for part in self.parts[len(floats) :]]
        if not floats:
            return newest
        # One mean over all of them: how a sum is taken, and so its last bits, depends on the vector's length.
        mean = torch.stack([torch.cat([part.of(report) for part in floats]) for report in reports]).mean(0)
        return self.encode([*torch.split(mean, [part.shape.numel() for part in floats]), *others])


class Buffers:
    """The buffers of one model, each with its policy.

    `policies`: by name; None for a buffer that no policy was chosen for, which begins each round at its initial value.

    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    >>> Buffers(FlatModule(model), {"*.running_*": "keep", "*": "keep"}).policies["1.running_mean"]
    'keep'
    """

    def __init__(self, flat: FlatModule, given: Policies):
        self._flat = flat
        self._buffers = {buffer.name: buffer for buffer in flat.buffers if buffer.initial is not None}
        self.policies = {name: _policy(given, buffer) for name, buffer in self._buffers.items()}
        unused = set() if isinstance(given, str) else set(given) - {first_match(given, n) for n in self._buffers}
        for pattern in unused:
            _check_useful(pattern, list(self._buffers))
        self.recalibrated, self.averaged = self._layers(RECALIBRATE), self._layers(AVERAGE)
        # By tensor: one that two layers share is reported once.
        distinct = {id(buffer.tensor): name for name, buffer in reversed(self._buffers.items())}
        reported = [
            (name, policy, buffer.initial)
            for name, buffer in self._buffers.items()
            if (policy := self.policies[name]) in (AVERAGE, KEEP)
            and buffer.initial is not None
            and (policy == KEEP or buffer.initial.is_floating_point())
            and distinct[id(buffer.tensor)] == name
        ]
        self.encoding = Encoding(reported)

    def _layers(self, policy: str) -> list[_NormBase]:
        """The layers whose running statistics have this policy."""
        found = [b for name, b in self._buffers.items() if _is_statistic(b) and self.policies[name] == policy]
        layers = list(dict.fromkeys(buffer.owner for buffer in found))
        for buffer in self._buffers.values():
            if buffer.owner in layers and _is_statistic(buffer) and self.policies[buffer.name] != policy:
                layer = buffer.name.rpartition(".")[0]
                raise ConfigError(
                    f"buffers: the statistics of {layer or 'a layer'} must share one policy, but {buffer.name} has "
                    f"{self.policies[buffer.name]!r} and others {policy!r}: write {f'{layer}.*'.lstrip('.')!r}"
                )
        return [layer for layer in layers if isinstance(layer, _NormBase)]

    @torch.no_grad()
    def begin_round(self, kept: Tensor | None) -> None:
        """Initial values; those that the worker keeps as in `kept`, the report of its last round."""
        self._flat.reset_buffers()
        if kept is not None:
            self._write(kept, (KEEP,))
        for layer in self.averaged:
            begin_mean(layer)

    @torch.no_grad()
    def read(self) -> Tensor | None:
        """What is reported, as bytes in memory of their own; None where nothing is."""
        return (
            self.encoding.encode([self._value(part) for part in self.encoding.parts]) if self.encoding.parts else None
        )

    @torch.no_grad()
    def load(self, values: Tensor | None) -> None:
        """Initial values, and those of a report (or of several, combined)."""
        self._flat.reset_buffers()
        if values is not None:
            self._write(values, (AVERAGE, KEEP))

    @torch.no_grad()
    def restore(self, values: Tensor | None, layers: Sequence[_NormBase]) -> None:
        """As `load`, but the statistics of these layers stay as they are."""
        for buffer in self._flat.buffers:
            if not (_is_statistic(buffer) and buffer.owner in layers):
                buffer.reset()
        if values is not None:
            self._write(values, (AVERAGE, KEEP))

    def _write(self, values: Tensor, policies: tuple[str, ...]) -> None:
        for part in self.encoding.parts:
            if part.policy in policies:
                target = self._buffers[part.buffer].value
                assert target is not None
                target.copy_(part.of(values).view(part.shape))

    def _value(self, part: Part) -> Tensor:
        value = self._buffers[part.buffer].value
        found = None if value is None else (value.shape, value.dtype)
        same_kind = value is not None and (
            value.dtype == part.dtype or (value.is_floating_point() and part.dtype.is_floating_point)
        )
        if value is None or value.shape != part.shape or not same_kind:
            was = f"{tuple(part.shape)} {part.dtype}"
            now = "None" if found is None else f"{tuple(found[0])} {found[1]}"
            raise ConfigError(
                f"the buffer {part.buffer} was {was} and is {now} after a round: one that is kept or averaged must "
                f"keep its shape and type; give it its full size in __init__, or the policy 'reset'"
            )
        return value.detach()


def begin_mean(layer: _NormBase) -> None:
    """Reset running statistics; BatchNorm's as a plain mean over the batches to come, not as a moving average."""
    layer.reset_running_stats()
    if isinstance(layer, _BatchNorm):
        layer.momentum = None


class Watch:
    """Made before a first training step, looks after it for what has changed although no policy was chosen for it."""

    def __init__(self, flat: FlatModule, given: Policies):
        self._flat, self._given = flat, given
        self._own = Buffers(flat, given)
        self._before = {b.name: None if b.value is None else b.value.clone() for b in flat.buffers}
        self._frozen = {name: p.detach().clone() for name, p in self._frozen_parameters().items()}

    @property
    def needed(self) -> bool:
        """Whether there is anything that might change."""
        free = None in self._own.policies.values() or None in self._before.values()
        return free or bool(self._frozen or self._own.encoding.parts)

    def warning(self) -> str | None:
        """What to tell the user about buffers; an error where frozen parameters have changed, or shapes."""
        self._own.read()
        if changed := [name for name, p in self._frozen_parameters().items() if _differ(self._frozen.get(name), p)]:
            raise ConfigError(
                f"{_listed('the frozen parameter', changed)} changed by a training step: say what becomes of it "
                f"between rounds, as in Task(buffers={_example(changed)})"
            )
        after = dict(self._flat.module.named_buffers(remove_duplicate=False))
        if made := [name for name in after if self._before.get(name) is None]:
            return (
                f"{_listed('the buffer', made)} made in a training step, and lost after each round: register it in "
                f"__init__ with its first value"
            )
        free = [name for name, policy in self._own.policies.items() if policy is None]
        if changed := [name for name in free if _differ(self._before[name], after.get(name))]:
            return (
                f"{_listed('the buffer', changed)} changed by a training step, but every round and the saved model "
                f"have the initial value again: choose a policy, as in Task(buffers={_example(changed)}), or 'reset' "
                f"if that is right (docs/how-to/buffers.md)"
            )
        return None

    def _frozen_parameters(self) -> dict[str, Tensor]:
        """Those without a policy."""
        found = self._flat.module.named_parameters()
        return {name: p.detach() for name, p in found if not p.requires_grad and first_match(self._given, name) is None}


def _policy(given: Policies, buffer: Buffer) -> str | None:
    """What becomes of this buffer; None where the task does not say."""
    assert buffer.initial is not None
    statistic, floating = _is_statistic(buffer), buffer.initial.is_floating_point()
    pattern = first_match(given, buffer.name)
    if pattern is None:
        chosen = given if isinstance(given, str) else RECALIBRATE
        # A policy for all buffers says nothing of those for which it makes no sense.
        fits = {RECALIBRATE: statistic, AVERAGE: statistic or floating}.get(chosen, True)
        return chosen if fits else None
    assert not isinstance(given, str)
    policy = given[pattern]
    if policy == RECALIBRATE and not statistic:
        raise ConfigError(
            f"buffers: {pattern!r} is to be recalibrated, but {buffer.name} is not a running statistic of a "
            f"normalisation layer: choose 'keep', 'average' or 'reset' for it"
        )
    if policy == AVERAGE and not (statistic or floating):
        raise ConfigError(
            f"buffers: {pattern!r} is to be averaged, but {buffer.name} is {buffer.initial.dtype}: choose 'keep' or "
            f"'reset' for it"
        )
    dense = buffer.initial.layout is torch.strided or policy == RESET
    require(dense, f"buffers: {buffer.name} is sparse, and can only have the policy 'reset'")
    return policy


def _is_statistic(buffer: Buffer) -> bool:
    return isinstance(buffer.owner, _NormBase) and buffer.key in STATISTICS


def _check_useful(pattern: str, names: list[str]) -> None:
    """A pattern that another one hides is right; one that no name fits is a mistake."""
    if any(fnmatchcase(name, pattern) for name in names):
        return
    there = f"it has {', '.join(names[:20])}{' ...' if len(names) > 20 else ''}" if names else "it has none"
    raise ConfigError(f"buffers: no buffer or frozen parameter of the model fits {pattern!r}: {there}")


def _differ(before: Tensor | None, after: Tensor | None) -> bool:
    """Whether the bits differ: NaN equals NaN."""
    if before is None or after is None or before.shape != after.shape or before.dtype != after.dtype:
        return before is not after
    if before.layout is not torch.strided:
        return False  # cannot be looked at, and hardly ever changes
    return not torch.equal(before.flatten().view(torch.uint8), after.flatten().view(torch.uint8))


def _listed(what: str, names: list[str]) -> str:
    """The names with their verb, as in "the buffer 'steps' is"."""
    if len(names) == 1:
        return f"{what} {names[0]!r} is"
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{what}s {', '.join(map(repr, names[:3]))}{more} are"


def _example(names: list[str]) -> str:
    """What to write to keep these."""
    parent = names[0].rpartition(".")[0]
    beside = parent and all(name.startswith(f"{parent}.") for name in names)
    patterns = [f"{parent}.*"] if beside and len(names) > 1 else names
    return str(dict.fromkeys(patterns[:3], KEEP)).replace("}", ", ...}" if len(patterns) > 3 else "}")
