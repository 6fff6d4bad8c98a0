"""The user's own loop on a Ray cluster: each worker's process somewhere on it; the server here, in the driver."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orlomo.config import RunConfig
from orlomo.engines.engine import Setup
from orlomo.engines.live.crew import Crew
from orlomo.engines.loops.live import LiveLoop
from orlomo.engines.loops.opening import loop_settings
from orlomo.engines.ray.connection import RayOptions, connection, import_ray
from orlomo.engines.ray.engine import threads_of
from orlomo.engines.ray.fit import Need, check_store
from orlomo.engines.registry import ENGINES
from orlomo.engines.session import Evaluator
from orlomo.loading import load_attribute
from orlomo.loop.program import Program
from orlomo.records.log import Log

if TYPE_CHECKING:
    from orlomo.engines.ray.loops import RayLoopCrew


class RayLoop(LiveLoop):
    """A user's loop on a Ray cluster. This module can be imported without Ray."""

    facts = ENGINES["ray"]

    @classmethod
    def check(cls, config: RunConfig) -> RunConfig:
        """Ray must be installed; devices are not looked for here, since the workers' machines are others."""
        import_ray()
        return dataclasses.replace(config, threads=config.threads or threads_of(config))

    @classmethod
    def make_crew(
        cls,
        config: RunConfig,
        program: Program,
        ray: RayOptions | None,
        stack: ExitStack,
        warn: Callable[[str], None],
    ) -> RayLoopCrew:
        """Actors that host the workers' processes. How large the model is, the first of them will say."""
        from orlomo.engines.ray.actors import pickled
        from orlomo.engines.ray.loops import RayLoopCrew

        if ".py:" in program.name:  # what the file defines goes along: not every machine has it
            program = dataclasses.replace(program, function=load_attribute(program.name, "function"))  # type: ignore[arg-type]
        content, log = pickled(program, "program"), Log(None, warn)
        stack.enter_context(connection(ray or RayOptions(), _need(config, config.workers, None, content.nbytes), log))
        root = str(((ray and ray.runtime_env) or {}).get("working_dir", ""))
        crew = RayLoopCrew(
            config,
            content,
            str(Path(root).absolute()) if root and Path(root).is_dir() else program.directory,
            lambda worker, rank: loop_settings(config, worker, rank, {}),
            log,
        )
        return stack.enter_context(crew)

    def __init__(self, setup: Setup):
        super().__init__(setup)
        # Ray raises when the cluster itself is gone (its head was killed): then no crew can help, the run is saved.
        self.failures = (import_ray().exceptions.RayError,)
        self.resume_flags = (setup.ray or RayOptions()).flags

    def open(self, stack: ExitStack) -> tuple[Crew, Evaluator]:
        """The crew whose first worker has said what it trains: now it is known whether the run fits on the cluster."""
        crew: Any = self.opened.crew
        crew.log.keep_in(self._folder)
        workers = max(self.config.workers, self._wanted_workers or 0, len(self.membership))
        check_store(import_ray(), _need(self.config, workers, self.server.params.nbytes, crew.program_bytes))
        return super().open(stack)


def _need(config: RunConfig, workers: int, vector_bytes: int | None, program_bytes: int) -> Need:
    from orlomo.engines.ray.actors import needed

    sent, reported = len(config.method.sent_vectors()), len(config.method.report_vectors)
    return Need(workers, needed(config), config.labels or {}, vector_bytes, program_bytes, sent, reported)
