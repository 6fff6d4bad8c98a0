"""The example of LoRA, in which worker 0 asks for one more worker after two steps, and goes on when that one trains.

Also says in a file who saves. A script, which test_huggingface.py runs: `lora_with_a_joiner.py RUN EXAMPLE ...`.
"""

from __future__ import annotations

import runpy
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from orlomo.integrations import huggingface

RUN, EXAMPLE = sys.argv[1:3]
JOINED = Path("joined")


class Join(TrainerCallback):
    def __init__(self, worker: int):
        self.worker = worker

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 2 and self.worker == 0:
            subprocess.run([sys.executable, "-m", "orlomo", "workers", RUN, "add", "1"], check=True)
        if self.worker == 2:
            JOINED.touch()
        while state.global_step == 2 and not JOINED.exists():
            time.sleep(0.05)


class Watched(huggingface.OrlomoTrainer):
    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.add_callback(Join(self.worker.id))

    def _save(self, *args: Any, **kwargs: Any) -> None:
        with Path("saved").open("a") as file:
            file.write(f"{self.worker.id}\n")
        super()._save(*args, **kwargs)


huggingface.OrlomoTrainer = Watched
sys.argv = sys.argv[2:]
runpy.run_path(EXAMPLE, run_name="__main__")
