"""What one who can reach a Ray cluster by the network tries on its ports: raw bytes, HTTP, gRPC, with what it has.

Run by ray_stranger.py on a machine of its own, with a table on standard input, as {"ports": [["10.77.0.1", 6379]],
"harmful": true, "token": ..., "ca": ..., "certificate": ..., "key": ...}; prints one row per attempt.
"""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import socket
import ssl
import sys
from pathlib import Path
from typing import Any

import grpc

SECONDS = 5.0
CALLS = (
    "ray.rpc.NodeInfoGcsService/GetAllNodeInfo",
    "ray.rpc.JobInfoGcsService/GetAllJobInfo",
    "ray.rpc.ActorInfoGcsService/GetAllActorInfo",
    "ray.rpc.InternalKVGcsService/InternalKVKeys",
    "ray.rpc.InternalKVGcsService/GetInternalConfig",
    "ray.rpc.NodeManagerService/GetNodeStats",
    "ray.rpc.ObjectManagerService/Pull",
    "ray.rpc.CoreWorkerService/GetCoreWorkerStats",
    "ray.rpc.CoreWorkerService/NumPendingTasks",
    "ray.rpc.ReporterService/GetTraceback",
    "ray.rpc.LogService/ListLogs",
    "ray.rpc.RayletDriver/ClusterInfo",
    "ray.rpc.RayletDriver/ListNamedActors",
)
"""One or more of each of Ray's services. An empty message is a valid argument of all of them."""

HARMFUL_CALLS = (
    "ray.rpc.InternalKVGcsService/InternalKVPut",
    "ray.rpc.JobInfoGcsService/AddJob",
    "ray.rpc.NodeInfoGcsService/DrainNode",
    "ray.rpc.NodeManagerService/RequestWorkerLease",
    "ray.rpc.NodeManagerService/ShutdownRaylet",
    "ray.rpc.CoreWorkerService/PushTask",
    "ray.rpc.CoreWorkerService/KillActor",
    "ray.rpc.CoreWorkerService/Exit",
    "ray.rpc.RayletDriver/Terminate",
)
"""Only for those who should be kept out: an owner who makes them ends up without a cluster."""

REQUESTS = (
    ("GET", "/"),
    ("GET", "/api/version"),
    ("GET", "/api/v0/actors"),
    ("GET", "/nodes?view=summary"),
    ("GET", "/logs"),
    ("GET", "/metrics"),
    ("POST", "/api/jobs/"),
    ("POST", "/api/job_agent/jobs/"),
    ("POST", "/get_or_create_runtime_env"),
    ("POST", "/delete_runtime_env_if_possible"),
)


def _context(given: dict[str, Any]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if given.get("certificate"):
        context.load_cert_chain(given["certificate"], given["key"])
    return context


def raw(host: str, port: int) -> dict[str, Any]:
    """Whether it listens to us, and what it says to a few bytes that mean nothing."""
    try:
        with socket.create_connection((host, port), timeout=SECONDS) as connection:
            connection.settimeout(1.0)
            connection.sendall(b"\x00\x01\x02stranger\r\n\r\n")
            try:
                answer = connection.recv(4096)
            except (TimeoutError, OSError):
                answer = b""
    except OSError as error:
        return {"how": "tcp", "what": "connect", "answer": type(error).__name__, "bytes": 0, "open": False}
    text = "HTTP/2 greeting" if _greets(answer) else answer[:60].decode("latin-1")
    return {"how": "tcp", "what": "bytes", "answer": text, "bytes": len(answer), "open": True}


def _greets(answer: bytes) -> bool:
    """Whether these are frames of HTTP/2 that say nothing but how to speak it: no headers, no data."""
    kinds = []
    while len(answer) >= 9:
        kinds.append(answer[3])
        answer = answer[9 + int.from_bytes(answer[:3], "big") :]
    return bool(kinds) and set(kinds) <= {4, 6, 7, 8}  # settings, ping, goodbye, window


def by_http(host: str, port: int, secure: bool, given: dict[str, Any]) -> list[dict[str, Any]]:
    """All requests; the status, and how much came."""
    rows = []
    for method, path in REQUESTS:
        how = "https" if secure else "http"
        connection: http.client.HTTPConnection
        if secure:
            connection = http.client.HTTPSConnection(host, port, timeout=SECONDS, context=_context(given))
        else:
            connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
        headers = {"Authorization": f"Bearer {given['token']}"} if given.get("token") else {}
        body = json.dumps({"entrypoint": "echo got in"}) if "jobs" in path else None
        try:
            connection.request(method, path, body, {**headers, "Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read(100_000)
            rows.append({"how": how, "what": f"{method} {path}", "answer": str(answer.status), "bytes": len(content)})
            rows[-1]["text"] = content[:200].decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            rows.append({"how": how, "what": f"{method} {path}", "answer": type(error).__name__, "bytes": 0})
        finally:
            connection.close()
        if rows[-1]["answer"] in ("BadStatusLine", "SSLError", "RemoteDisconnected", "ConnectionResetError"):
            break  # it does not speak HTTP
    return rows


def by_grpc(host: str, port: int, secure: bool, given: dict[str, Any]) -> list[dict[str, Any]]:
    """All calls; the status, and how much came."""
    target = f"{host}:{port}"
    options = [("grpc.enable_retries", 0)]
    if secure:
        own = [Path(given[name]).read_bytes() for name in ("key", "certificate")] if given.get("certificate") else []
        trusted = Path(given["ca"]).read_bytes() if given.get("ca") else None
        credentials = grpc.ssl_channel_credentials(trusted, *own)
        channel = grpc.secure_channel(target, credentials, options)
    else:
        channel = grpc.insecure_channel(target, options)
    metadata = [("authorization", f"Bearer {given['token']}")] if given.get("token") else []
    rows = []
    with channel:
        for name in CALLS + (HARMFUL_CALLS if given["harmful"] else ()):
            call = channel.unary_unary(f"/{name}")
            row = {"how": "grpc+tls" if secure else "grpc", "what": name, "bytes": 0}
            try:
                answer = call(b"", timeout=SECONDS, metadata=metadata)
                row |= {"answer": "OK", "bytes": len(answer), "text": answer[:200].decode("utf-8", "replace")}
            except grpc.RpcError as error:
                row |= {"answer": error.code().name, "text": (error.details() or "")[:200]}
            rows.append(row)
            if row["answer"] == "UNAVAILABLE":
                break  # there is no connection
    return rows


def attempt(host: str, port: int, given: dict[str, Any]) -> list[dict[str, Any]]:
    """All of it on one port."""
    first = raw(host, port)
    rows = [first]
    if first["open"]:
        for secure in (False, True):
            rows += by_http(host, port, secure, given) + by_grpc(host, port, secure, given)
    return [{"host": host, "port": port, **row} for row in rows]


def main() -> None:
    """What was asked for."""
    given = json.load(sys.stdin)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        done = [pool.submit(attempt, host, port, given) for host, port in given["ports"]]
        json.dump([row for one in done for row in one.result()], sys.stdout)


if __name__ == "__main__":
    main()
