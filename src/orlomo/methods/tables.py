"""A method as a table of a config: where it comes from, and its hyperparameters."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from orlomo.errors import ConfigError, require
from orlomo.loading import is_import_path
from orlomo.methods.ledger import Fold
from orlomo.methods.messages import Report
from orlomo.methods.method import Method
from orlomo.methods.rates import is_own
from orlomo.methods.registry import CUSTOM, METHODS, method_class, origin, settings_of, unknown_setting
from orlomo.methods.state import ServerState
from orlomo.methods.worker import WorkerRule
from orlomo.values import Table, convert, plain, shown

FACTS = ("name", "class", "synchronous")
"""Keys of a method's table that are not hyperparameters."""


@dataclass(frozen=True, kw_only=True)
class Recorded(Method):
    """The method of a run whose code is not loaded: it can be shown, not run."""

    table: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Nothing is checked: that was done when the run started."""

    def check_schedule(self, epochs: float) -> None:
        """Nor this: it may be in a file that is not here."""

    def worker(self, params: Tensor) -> WorkerRule:
        raise ConfigError(f"{self.name} is only recorded here: its code is not loaded")

    def fold(self, state: ServerState, fold: Fold, report: Report) -> None:
        raise ConfigError(f"{self.name} is only recorded here: its code is not loaded")


def to_table(method: Method) -> Table:
    """Where a method comes from and its hyperparameters; None is left out.

    Of one that is not built in also its own name and kind, so that a run can be shown without running its code.

    >>> import orlomo
    >>> to_table(orlomo.ALSGD(learning_rate=0.5))["name"]
    'al-sgd'
    """
    if isinstance(method, Recorded):
        return dict(method.table)
    table: Table = {"name": origin(method)}
    if table["name"] not in METHODS:
        table |= {"class": method.name, "synchronous": method.synchronous}
    values = {name: getattr(method, name) for name in settings_of(type(method))}
    if callable(values.get("schedule")):
        values["schedule"] = CUSTOM
    return table | {name: plain(value) for name, value in values.items() if value is not None}


def from_table(table: Table, where: str, given: Method | None = None, code: bool = True) -> Method:
    """The method of such a table; or `given`, where it is the same: one that only Python has cannot be made again.

    Without `code`, no code is run that is not built in: what is a user's own is `Recorded`.
    """
    settings = dict(table)
    name = str(settings.pop("name", "orlomo"))
    own = name == CUSTOM or is_import_path(name)
    schedule = table.get("schedule")
    if given is not None:
        good = isinstance(given, Method)
        require(good, f"method must be an object of the method that {where} was made with, not {shown(given)}")
        return _checked(table, given, where)
    own_schedule = schedule == CUSTOM or (isinstance(schedule, str) and is_own(schedule))
    if (own or own_schedule) and not code:
        synchronous = bool(table.get("synchronous", False)) if own else method_class(name).synchronous
        facts = {"name": str(table.get("class", name)), "synchronous": synchronous}
        kind = type("Recorded", (Recorded,), facts)
        recorded: Method = kind(table=table)
        for key in table.keys() - set(FACTS):
            object.__setattr__(recorded, key, table[key])  # what the run was made with, not the defaults
        return recorded
    if schedule == CUSTOM:
        raise ConfigError(f"{where}: schedule is a function that only Python has: give the method with it")
    settings = {key: value for key, value in settings.items() if not own or key not in FACTS}
    kind = method_class(name)
    known, hints = settings_of(kind), typing.get_type_hints(kind)
    for key in settings:
        if key not in known:
            raise unknown_setting(f"setting of {kind.name}", key, known)
    # Which types a class takes is known only here, when it runs: `convert` has checked them.
    values: dict[str, Any] = {
        key: convert(value, hints[key], f"{where}, method {key}") for key, value in settings.items()
    }
    made: Method = kind(**values)
    return made


def _checked(table: Table, given: Method, where: str) -> Method:
    found = to_table(given)
    for name in {**table, **found}:
        if table.get(name) != found.get(name):
            raise ConfigError(
                f"{where} has {name} = {table.get(name)!r}, the method given has {found.get(name)!r}: give the same one"
            )
    return given
