"""Whether a change of the code has changed a bit: every method trained with two versions of orlomo, and compared.

    git worktree add /tmp/before COMMIT
    python benchmarks/same_bits.py /tmp/before

Simulated with 1 and with 3 jobs (events.csv and the parameters, also those of evaluations, must be the same), and on
processes, where the run must replay with its own version, bit for bit. Columns that only one version has are left out.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

METHODS = ("orlomo", "al-sgd", "local-ormo-da", "prsgdm", "ormo-da", "asgd", "local-sgd", "msgd")

RUN = """
import json, sys
import orlomo
from pathlib import Path
out, found = Path(sys.argv[1]), {}
for name in sys.argv[2:]:
    workers = 1 if name == "msgd" else 6
    steps = {} if name in ("asgd", "ormo-da") else {"local_steps": 4}
    method = orlomo.method(name, learning_rate=0.05, schedule="step:2,4", weight_decay=1e-4, **steps)
    faults = () if workers == 1 else (
        orlomo.Fault(time=60, worker=1, kind="crash"), orlomo.Fault(time=90, worker=1, kind="return"),
        orlomo.Fault(time=70, worker=7, kind="join"), orlomo.Fault(time=120, worker=2, kind="leave"),
    )
    speeds = (orlomo.Speed(share=0.7), orlomo.Speed(share=0.3, factor=3.0, law="exponential"))
    cluster = orlomo.Cluster(name="uneven", speeds=speeds, faults=faults, latency_seconds=0.1)
    for jobs in (1, 3):
        run = orlomo.train("digits", method, workers=workers, epochs=3, cluster=cluster, seed=3, jobs=jobs,
                           evaluate_every=0.5, out=out / f"{name}-{jobs}")
        found[f"{name} simulated, {jobs} jobs"] = run.checkpoint.values["params_checksum"]
    few = min(workers, 3)
    run = orlomo.train("digits", method, workers=few, epochs=2, engine="processes", seed=3, out=out / f"{name}-real")
    found[f"{name} on processes"] = "replays" if orlomo.replay(run.folder, jobs=1).agrees else "DOES NOT REPLAY"
print(json.dumps(found))
"""


def trained(source: Path, out: Path) -> dict[str, str]:
    """Train with the version in this folder; what came out, by run."""
    environment = {**os.environ, "PYTHONPATH": str(source / "src")}
    command = [sys.executable, "-c", RUN, str(out), *METHODS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{source}: {done.stderr}")
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def columns(path: Path) -> dict[str, list[str]]:
    """A CSV file's columns, as text."""
    with path.open(newline="") as file:
        names, *rows = csv.reader(file)
    return {name: [row[position] for row in rows] for position, name in enumerate(names)}


def differences(before: Path, after: Path) -> list[str]:
    """The columns in which two runs' tables differ; real time always does."""
    found = []
    for table in ("events.csv", "metrics.csv"):
        old, new = columns(before / table), columns(after / table)
        shared = [name for name in old if name in new and name != "real_seconds"]
        found += [f"{table} {name}" for name in shared if old[name] != new[name]]
    return found


def main() -> int:
    """Compare, print one line per run; the exit code is 1 where anything differs."""
    here, wrong = Path(__file__).parents[1], 0
    with tempfile.TemporaryDirectory() as folder:
        outs = {source: Path(folder) / name for name, source in (("old", Path(sys.argv[1])), ("new", here))}
        old, new = (trained(source, out) for source, out in outs.items())
        for name, value in old.items():
            problems = [] if new[name] == value else [f"{value} before, {new[name]} now"]
            if "jobs" in name:
                run = f"{name.split()[0]}-{name.split()[2]}"
                problems += differences(*(out / run for out in outs.values()))
            wrong += bool(problems)
            print(f"{name}: {'; '.join(problems) or f'the same ({value})'}")
    print(f"{len(old)} runs, {wrong} differ")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
