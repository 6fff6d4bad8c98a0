"""Two machines and the cable between them, on one: two network namespaces joined by a veth pair, with Ray in each.

Run by test_ray.py in namespaces of its own:

python ray_network.py token|tls|token+tls FOLDER
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orlomo
import sleepy
from orlomo.engines.ray.connection import HEALTH_CHECKS

MACHINES = {"a": "10.77.0.1", "b": "10.77.0.2"}
ADDRESS = f"{MACHINES['a']}:6379"
TEMP = os.environ["RAY_SCENARIO_TEMP"]
SECURITY = {machine: {"RAY_AUTH_MODE": "disabled"} for machine in MACHINES}
BIN = Path(sys.executable).parent


def sh(command: str) -> None:
    subprocess.run(command, shell=True, check=True, capture_output=True)


def build() -> None:
    """The machines and the cable."""
    sh("mount -t tmpfs tmpfs /run")
    for machine in MACHINES:
        sh(f"ip netns add {machine} && ip -n {machine} link set lo up")
    sh("ip link add cable netns a type veth peer name cable netns b")
    for machine, address in MACHINES.items():
        sh(f"ip -n {machine} addr add {address}/24 dev cable && ip -n {machine} link set cable up")


def use_token() -> None:
    """One token for all."""
    token = secrets.token_hex(16)
    for settings in SECURITY.values():
        settings.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=token)


def use_tls() -> None:
    """An authority of our own, and a certificate for each machine."""
    sh(f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout {TEMP}/ca.key -out {TEMP}/ca.crt")
    for machine, address in MACHINES.items():
        path = f"{TEMP}/{machine}"
        Path(f"{path}.ext").write_text(f"subjectAltName=DNS:localhost,IP:127.0.0.1,IP:{address}\n")
        sh(f"openssl req -newkey rsa:2048 -nodes -subj /CN={address} -keyout {path}.key -out {path}.csr")
        sh(
            f"openssl x509 -req -days 2 -in {path}.csr -CA {TEMP}/ca.crt -CAkey {TEMP}/ca.key -CAcreateserial "
            f"-extfile {path}.ext -out {path}.crt"
        )
        SECURITY[machine].update(
            RAY_USE_TLS="1",
            RAY_TLS_SERVER_CERT=f"{path}.crt",
            RAY_TLS_SERVER_KEY=f"{path}.key",
            RAY_TLS_CA_CERT=f"{TEMP}/ca.crt",
        )


def on(machine: str, *words: object, security: bool = True, **more: Any) -> subprocess.Popen[str]:
    """A command on a machine."""
    environment = {**os.environ, "HOME": TEMP, **(SECURITY[machine] if security else {"RAY_AUTH_MODE": "disabled"})}
    return subprocess.Popen(["ip", "netns", "exec", machine, *map(str, words)], text=True, env=environment, **more)


def start_ray(machine: str) -> subprocess.Popen[str]:
    """As docs/how-to/ray.md says."""
    words: list[object] = [BIN / "ray", "start", "--block", f"--node-ip-address={MACHINES[machine]}", "--num-cpus=1"]
    words.append("--object-store-memory=100000000")
    if machine == "a":
        checks = json.dumps(HEALTH_CHECKS, separators=(",", ":"))
        words += ["--head", "--port=6379", "--include-dashboard=false", f"--temp-dir={TEMP}/ray"]
        words.append(f"--system-config={checks}")
    else:
        words.append(f"--address={ADDRESS}")
    with open(f"{TEMP}/ray-start-{machine}.txt", "a") as file:
        return on(machine, *words, stdout=file, stderr=file)


def train(folder: Path, reports: int, security: bool = True) -> subprocess.Popen[str]:
    """The driver, on the first machine."""
    words = ["train", TASK, "--engine", "ray", "--address", ADDRESS, "--workers", 2, "--local-steps", 2]
    words += ["--learning-rate", 0.02, "--epochs", reports / 4, "--out", folder]
    with open(said(folder), "w") as file:
        return on("a", sys.executable, "-m", "orlomo", *words, security=security, stdout=file, stderr=file)


TASK = f"{Path(__file__).parent / 'sleepy.py'}:task"


def said(folder: Path) -> Path:
    """What the driver of this run said."""
    return Path(f"{TEMP}/driver-{folder.name}.txt")


def wait_for(what: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 120.0) -> float:
    """Until it has happened, while this process runs; how long that took."""
    begin = time.monotonic()
    while not what():
        assert process.poll() is None, "it has ended"
        assert time.monotonic() < begin + seconds, f"it did not happen within {seconds} s"
        time.sleep(0.05)
    return time.monotonic() - begin


def pulled_cable(folder: Path, other: subprocess.Popen[str]) -> None:
    """A moment without the cable is a delay; for longer, the machine is lost, and joins again when it is back."""
    log, events = folder / "log.txt", folder / "events.csv"
    driver = train(folder, 40_000)

    def reports() -> int:
        return events.read_text().count("\nreport,") if events.exists() else 0

    wait_for(lambda: reports() > 50, driver)
    sh("ip -n b link set cable down")
    time.sleep(1.5)
    sh("ip -n b link set cable up && ip -n b addr replace 10.77.0.2/24 dev cable")
    before = reports()
    wait_for(lambda: reports() > before + 100, driver)
    assert not log.exists() or "is lost" not in log.read_text()

    sh("ip -n b link set cable down")
    noticed = wait_for(lambda: log.exists() and "is lost" in log.read_text(), driver)
    print(f"noticed after {noticed:.1f} s")
    assert noticed < 10
    sh("ip -n b link set cable up")
    wait_for(lambda: other.poll() is not None, driver)  # Ray ends on a machine that was given up
    start_ray("b")
    wait_for(lambda: "joins" in log.read_text(), driver)
    subprocess.run(["pkill", "-INT", "-f", "--", "-m orlomo train"], check=True)
    assert driver.wait() == 130
    changes = sleepy.check(orlomo.load(folder))
    assert [kind for kind, _ in changes] == ["crash", "join"]


def main(kind: str, folder: Path) -> None:
    """With these ways of keeping strangers out."""
    build()
    if "token" in kind:
        use_token()
    if "tls" in kind:
        use_tls()
    head = start_ray("a")
    wait_for(lambda: "Ray runtime started" in Path(f"{TEMP}/ray-start-a.txt").read_text(), head)
    other = start_ray("b")

    run = train(folder / "run", 200)
    stranger = train(folder / "stranger", 200, security=False)
    assert run.wait() == 0
    words = said(folder / "run").read_text()
    assert ("TLS alone does not guard all of Ray" in words) == (kind == "tls")
    assert "neither a token nor TLS" not in words
    assert "notices a lost machine" not in words
    assert orlomo.load(folder / "run").finished
    sleepy.check(orlomo.load(folder / "run"))

    assert stranger.wait() == 2
    hint = "speaks TLS: set RAY_USE_TLS=1" if "tls" in kind else "does not let us in: set RAY_AUTH_MODE=token"
    words = said(folder / "stranger").read_text()
    assert words.splitlines()[-1].startswith(f"orlomo: the Ray cluster at {ADDRESS} {hint}")
    assert not (folder / "stranger").exists()
    if "token" in kind:  # once will do
        pulled_cable(folder / "cable", other)


def run_alone(main: Callable[[str, Path], None]) -> None:
    """Call `main` with this process's arguments; where it fails, print what was logged. The process ends."""
    try:
        main(sys.argv[1], Path(sys.argv[2]))
    except BaseException:
        for path in [*Path(TEMP).glob("*.txt"), *Path(sys.argv[2]).glob("*/log.txt")]:
            print(f"--- {path}", path.read_text()[-1500:], sep="\n")
        raise
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    run_alone(main)
