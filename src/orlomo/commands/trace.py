"""The command `orlomo trace`: a schedule alone, without a task."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    """Add the command to the parser's."""
    command = commands.add_parser("trace", help="lay down a schedule alone, without a task, as CSV", allow_abbrev=False)
    command.add_argument("--method", default="orlomo")
    command.add_argument("--workers", type=int, default=16)
    command.add_argument("--iterations", type=int, default=1000)
    command.add_argument("--local-steps", type=int)
    command.add_argument("--cluster", default="homogeneous")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--parameters", type=int, default=0, help="the model's size, where bytes cost time")
    command.add_argument("--out", type=Path, help="the CSV file (default: only the summary)")
    command.add_argument("--json", action="store_true")
    command.set_defaults(call=call)


def call(options: argparse.Namespace) -> int:
    """Lay it down, write it, print a summary."""
    import numpy as np

    from orlomo import config
    from orlomo.clusters.schedule import COLUMNS, KINDS, trace
    from orlomo.methods.registry import method
    from orlomo.records.columns import TableWriter

    settings = {} if options.local_steps is None else {"local_steps": options.local_steps}
    events = trace(
        method(options.method, **settings),
        workers=options.workers,
        iterations=options.iterations,
        cluster=config.make_cluster(options.cluster, "--cluster"),
        seed=options.seed,
        parameters=options.parameters,
    )
    if options.out is not None:
        writer = TableWriter(options.out, COLUMNS)
        names = list(COLUMNS)
        for number, values in enumerate(zip(*(events[name].tolist() for name in names), strict=True)):
            writer.append({**dict(zip(names, values, strict=True)), "kind": KINDS[values[0]]})
            if number % 10_000 == 0:
                writer.flush()
        writer.close()
    delays = events["delay"][events.reports]
    facts = {
        "events": len(events),
        "virtual_seconds": float(events["finish"][-1]),
        "mean_delay": float(np.mean(delays)),
        "max_delay": int(np.max(delays)),
    }
    if options.json:
        print(json.dumps(facts))
    else:
        print("  ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in facts.items()))
    return 0
