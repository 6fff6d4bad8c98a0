"""The engines by their names, and what is known of each without loading it: torch and Ray are not loaded here."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from orlomo.errors import unknown_name

if TYPE_CHECKING:
    from orlomo.engines.engine import Engine

Clock: TypeAlias = Literal["virtual", "real"]


class Facts(NamedTuple):
    """What is known of an engine.

    `path`: `module:class` below `orlomo.engines`; `loop`: the same for loops of the user's own. `clock`: whether its
    seconds are virtual (then the same config gives the same bits) or real. `settings`: the fields of `RunConfig` that
    it takes and that an engine without them refuses. `instead`: by the name of a setting that it refuses, what serves
    the same end here.
    """

    path: str
    clock: Clock
    settings: frozenset[str]
    instead: Mapping[str, str] = MappingProxyType({})
    loop: str = ""


ENGINES = {
    "simulated": Facts(
        "simulated.engine:Simulated",
        "virtual",
        frozenset({"cluster"}),
        {"devices": "--device", "pace": "--cluster", "threads": "--jobs"},
        "loops.simulated.engine:SimulatedLoop",
    ),
    "processes": Facts(
        "processes.engine:Processes",
        "real",
        frozenset({"devices", "threads", "pace"}),
        {"cluster": "--pace"},
        "loops.live:ProcessLoop",
    ),
    "ray": Facts(
        "ray.engine:RayCluster",
        "real",
        frozenset({"threads", "pace", "resources", "labels"}),
        {"cluster": "--pace", "devices": "--resources GPU=1"},
        "loops.ray:RayLoop",
    ),
}
"""Every engine by its name on the command line."""


def facts_of(name: str) -> Facts:
    """What is known of the engine of this name.

    >>> facts_of("processes").clock
    'real'
    """
    if name not in ENGINES:
        raise unknown_name("engine", name, ENGINES)
    return ENGINES[name]


def engine_class(name: str, loop: bool = False) -> type[Engine]:
    """The engine of this name, loaded; `loop`: for the user's own loop."""
    facts = facts_of(name)
    module, _, attribute = (facts.loop if loop else facts.path).partition(":")
    found: type[Engine] = getattr(importlib.import_module(f"orlomo.engines.{module}"), attribute)
    return found


def why_refused(name: str, setting: str) -> str:
    """What to say of a setting that this engine does not take.

    >>> why_refused("ray", "devices")
    'devices is for --engine processes, not ray: see --resources GPU=1'
    """
    takers = [other for other, facts in ENGINES.items() if setting in facts.settings]
    instead = facts_of(name).instead.get(setting)
    return f"{setting} is for --engine {' or '.join(takers)}, not {name}: " + (
        f"see {instead}" if instead else "leave it out"
    )


def refused_settings(name: str) -> list[str]:
    """The settings of other engines that this one does not take."""
    every = frozenset[str]().union(*(facts.settings for facts in ENGINES.values()))
    return sorted(every - facts_of(name).settings)
