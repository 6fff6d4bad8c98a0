"""A Ray cluster of two machines, a run on it, and a third machine whose owner has neither its token nor a certificate.

Run by benchmarks/strangers.py in namespaces of its own:

python ray_stranger.py token|token+tls FOLDER

Every port on which anything of the cluster listens is tried, with nothing, with a wrong token, with a certificate that
the stranger has signed, and with both; see stranger.py. With what the cluster's owner has, the same attempts must
succeed: else they would prove nothing.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import orlomo
import ray_network as network
import sleepy
from ray_network import MACHINES, SECURITY, TEMP, said, sh

TESTS = Path(__file__).parent
KEPT_OUT = {"UNAVAILABLE", "UNAUTHENTICATED", "401", "403"}
"""What a stranger is answered: no connection, or that it may not. Anything else with a number or a name is too much."""

SERVICES = {
    "GetAllNodeInfo": 1,  # of the head
    "GetNodeStats": 2,  # of the Ray of each machine
    "Pull": 2,  # of the object stores
    "GetCoreWorkerStats": 3,  # of the server and two workers
    "POST /get_or_create_runtime_env": 2,  # of the agents that set up environments
}
"""What the owner reaches, on so many ports."""


def build() -> None:
    """A third machine, with a cable to the first, which passes on what is for the second."""
    network.build()
    sh("ip netns add c && ip -n c link set lo up")
    sh("ip link add other netns a type veth peer name cable netns c")
    sh("ip -n a addr add 10.77.1.1/24 dev other && ip -n a link set other up")
    sh("ip -n c addr add 10.77.1.2/24 dev cable && ip -n c link set cable up")
    sh("ip -n c route add default via 10.77.1.1 && ip -n b route add 10.77.1.0/24 via 10.77.0.1")
    sh("ip netns exec a sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'")


def listening() -> dict[tuple[str, int], str]:
    """Every port of the cluster that other machines can reach, and the process that listens on it."""
    found = {}
    for machine, address in MACHINES.items():
        words = ["ip", "netns", "exec", machine, "ss", "-ltnpH"]
        for line in subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines():
            host, _, port = line.split()[3].rpartition(":")
            name = re.search(r'"([^"]*)"', line)
            if not host.startswith(("127.", "[::1]")):
                found[address, int(port)] = name[1] if name else "?"
    return found


def attempts(ports: dict[tuple[str, int], str], given: dict[str, str], harmful: bool = False) -> list[dict[str, Any]]:
    """What one who has these things sees from the third machine."""
    asked = json.dumps({"ports": sorted(ports), "harmful": harmful, **given})
    words = ["ip", "netns", "exec", "c", sys.executable, str(TESTS / "stranger.py")]
    done = subprocess.run(words, input=asked, capture_output=True, text=True, check=True, timeout=600)
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def got_in(rows: list[dict[str, Any]], ports: dict[tuple[str, int], str]) -> Counter[tuple[str, str]]:
    """Attempts that were answered with more than a refusal, by process and what was tried."""
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        answer, name = row["answer"], ports[row["host"], row["port"]]
        if row["how"] == "tcp":
            assert row["open"], f"{row} cannot be reached: nothing is proved"
            useful = row["bytes"] > 0 and not answer.startswith(("HTTP/1.0 400", "HTTP/1.1 400", "HTTP/2 greeting"))
        elif row["how"].startswith("grpc"):
            useful = answer not in KEPT_OUT | {"UNIMPLEMENTED"}  # the last: there is no such service on this port
        else:
            useful = answer.isdigit() and answer not in KEPT_OUT | {"404"}
        found[name, row["what"]] += useful
    return +found


def main(kind: str, folder: Path) -> None:
    """All of it."""
    build()
    network.use_token()
    owner, ca = {"token": SECURITY["a"]["RAY_AUTH_TOKEN"]}, {}
    own = {"certificate": f"{TEMP}/own.crt", "key": f"{TEMP}/own.key"}
    sh(f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout {own['key']} -out {own['certificate']}")
    theirs = {}
    if "tls" in kind:
        network.use_tls()
        theirs = {"certificate": f"{TEMP}/a.crt", "key": f"{TEMP}/a.key"}
        ca = {"ca": f"{TEMP}/ca.crt"}  # it is no secret
    head = network.start_ray("a")
    network.wait_for(lambda: "Ray runtime started" in Path(f"{TEMP}/ray-start-a.txt").read_text(), head)
    network.start_ray("b")
    run = network.train(folder / "run", 1_000_000)
    events = folder / "run" / "events.csv"

    def reports() -> int:
        return events.read_text().count("\nreport,") if events.exists() else 0

    network.wait_for(lambda: reports() > 50, run)
    ports = listening()
    print(*(f"{host}:{port} {name}" for (host, port), name in sorted(ports.items())), sep="\n", flush=True)
    reached = got_in(attempts(ports, {**ca, **owner, **theirs}), ports)
    for what, count in SERVICES.items():
        assert sum(n for (_, tried), n in reached.items() if tried.endswith(what)) >= count, (what, reached)
    wrong = {"token": "f" * 32}
    strangers = {"nothing": {}, "a wrong token": wrong, "a certificate of its own": own, "both": {**wrong, **own}}
    if theirs:
        strangers["a certificate of the cluster, without the token"] = theirs
    total = 0
    for who, given in strangers.items():
        rows = attempts(ports, {**ca, **given}, harmful=True)
        total += len(rows)
        print(f"with {who}: {len(rows)} attempts, {dict(Counter(row['answer'][:30] for row in rows))}", flush=True)
        assert not got_in(rows, ports), (who, got_in(rows, ports))
    if theirs:  # as docs/how-to/ray.md says: what speaks plain HTTP asks for the token alone
        reached = got_in(attempts(ports, {**ca, **owner}), ports)
        assert {name for name, _ in reached} == {"ray::RuntimeEnv"}, reached

    # A driver on a machine of the cluster, with what is wrong.
    SECURITY["a"]["RAY_AUTH_TOKEN"] = wrong["token"]
    if theirs:
        SECURITY["a"] |= {"RAY_TLS_SERVER_CERT": own["certificate"], "RAY_TLS_SERVER_KEY": own["key"]}
    driver = network.train(folder / "stranger", 200)
    assert driver.wait(120) == 2, said(folder / "stranger").read_text()[-2000:]
    assert "does not let us in" in said(folder / "stranger").read_text().splitlines()[-1]
    assert not (folder / "stranger").exists()

    before = reports()
    network.wait_for(lambda: reports() > before + 50, run)  # and the run has noticed nothing
    subprocess.run(["pkill", "-INT", "-f", "--", "-m orlomo train"], check=True)
    assert run.wait() == 130, said(folder / "run").read_text()[-2000:]
    assert sleepy.check(orlomo.load(folder / "run")) == []
    print(f"{kind}: {total} attempts of {len(strangers)} strangers on {len(ports)} ports: none got in")


if __name__ == "__main__":
    network.run_alone(main)
