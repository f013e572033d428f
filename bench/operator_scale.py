#!/usr/bin/env python3
"""How the operator holds up: many backends, endpoints and routers on one machine.

    python bench/operator_scale.py [--backends 1000] [--routers 50] [--writes 200]

Three processes: the API server of the tests (this one), `sglr-operator run`, and the routers. Prints, as JSON: start until every router is synced, the operator's memory, from an
EndpointSlice write to the last router that has it in force (with the histogram), what no-op events
push, and the operator's own measure up to the last acknowledgement.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "scripts")]

from ports import reserved_port  # noqa: E402  # needs the path above

from support.kube_api import FakeApi, running_api  # noqa: E402  # same
from support.operators import kubeconfig  # noqa: E402  # same

NAMESPACE = "inference"
BIG = "big"
MARK = "10.201."
"""How the address that a write brings begins."""
HOST = b'"host":"' + MARK.encode()
BUCKETS = (10, 25, 50, 100, 150, 200, 250, 300, 400, 500, 750, 1000, 2000, 5000)
"""Upper edges in milliseconds."""


def backend(name: str) -> dict[str, Any]:
    """Return a backend of the Service of the same name."""
    return {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "model": {"name": name},
            "tokenizer": {"path": "/t"},
            "workers": {"service": {"name": name}},
        },
    }


def populate(api: FakeApi, backends: int, each: int) -> None:
    """Create *backends* with *each* endpoints, and one with a thousand in ten slices."""
    for number in range(backends - 1):
        name = f"b{number}"
        hosts = [f"10.{number // 250}.{number % 250}.{i}" for i in range(each)]
        create(api, name, hosts)
    create(api, BIG, [])
    for piece in range(10):
        put_slice(api, BIG, piece, [f"10.200.{piece}.{i}" for i in range(100)])


def create(api: FakeApi, name: str, hosts: list[str]) -> None:
    """Create a backend, its Service, its slice and its pods."""
    api.put("sglangbackends", backend(name))
    meta = {"name": name, "namespace": NAMESPACE}
    api.put("services", {"metadata": meta, "spec": {"ports": [{"port": 30000}]}})
    for host in hosts:
        api.put(
            "pods",
            {
                "metadata": {"name": f"p-{host}", "namespace": NAMESPACE, "uid": f"u-{host}"},
                "status": {
                    "phase": "Running",
                    "podIP": host,
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            },
        )
    if hosts:
        put_slice(api, name, 0, hosts)


def put_slice(api: FakeApi, service: str, piece: int, hosts: list[str]) -> None:
    """Create or replace one slice of a Service."""
    api.put(
        "endpointslices",
        {
            "metadata": {
                "name": f"{service}-{piece}",
                "namespace": NAMESPACE,
                "labels": {"kubernetes.io/service-name": service},
            },
            "addressType": "IPv4",
            "ports": [{"name": "", "port": 30000}],
            "endpoints": [
                {
                    "addresses": [host],
                    "conditions": {"ready": True},
                    "targetRef": {"kind": "Pod", "name": f"p-{host}", "uid": f"u-{host}"},
                }
                for host in hosts
            ],
        },
    )


class Fleet:
    """Routers in one process, and what all of them have seen."""

    def __init__(self, count: int, pipe: Connection) -> None:
        """Tell *pipe* whenever the last of *count* routers has seen something."""
        self._count = count
        self._pipe = pipe
        self._seen: dict[str, set[int]] = {}

    def saw(self, what: str, router: int) -> None:
        """Note that *router* has seen *what*."""
        seen = self._seen.setdefault(what, set())
        if router not in seen:
            seen.add(router)
            if len(seen) == self._count:
                self._pipe.send((what, time.monotonic()))


def routers(port: int, count: int, real: int, pipe: Connection) -> None:
    """Run *count* routers, *real* of them with the product's intake, for ever.

    The others acknowledge each update as it comes, without decoding it: fifty routers have fifty
    machines in real life, and one process here.
    """
    asyncio.run(_routers(port, count, real, Fleet(count, pipe)))


async def _routers(port: int, count: int, real: int, fleet: Fleet) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            run = _intake if number < real else _acknowledge
            tasks.create_task(run(port, number, fleet))


async def _intake(port: int, number: int, fleet: Fleet) -> None:
    from sglr_dataplane.fleet.intake import Intake
    from sglr_dataplane.fleet.intake_config import IntakeConfig
    from sglr_dataplane.metrics import RouterMetrics
    from sglr_proto.snapshot import Snapshot

    def apply(snapshot: Snapshot) -> None:
        fleet.saw("synced", number)
        for each in snapshot.backends:
            if each.backend.metadata.name == BIG:
                for endpoint in each.endpoints:
                    if endpoint.host.startswith(MARK):
                        fleet.saw(endpoint.host, number)

    config = IntakeConfig(
        operator=f"127.0.0.1:{port}", router=f"r{number}", pod_uid=f"uid-{number}"
    )
    intake = Intake(
        config,
        apply=apply,
        health=dict,
        metrics=RouterMetrics(),
        clock=time.monotonic,
        chance=lambda: 0.5,
    )
    await intake.run()


async def _acknowledge(port: int, number: int, fleet: Fleet) -> None:
    import grpc.aio

    options = [("grpc.max_receive_message_length", 16 * 1024 * 1024)]
    while True:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            with suppress(grpc.aio.AioRpcError):
                await _answer(channel, number, fleet)
        await asyncio.sleep(0.2)


async def _answer(channel: Any, number: int, fleet: Fleet) -> None:
    from sglr_proto.discovery import push_pb2 as pb
    from sglr_proto.discovery.push_pb2_grpc import EndpointPushStub

    call = EndpointPushStub(channel).Subscribe()
    hello = pb.Hello(router=f"r{number}", pod_uid=f"uid-{number}", protocol_versions=[1])
    await call.write(pb.RequestBatch(requests=[pb.SubscribeRequest(hello=hello)]))
    while isinstance(batch := await call.read(), pb.PushBatch):
        answers = []
        for response in batch.responses:
            if response.HasField("sync_complete"):
                fleet.saw("synced", number)
            if not response.HasField("update"):
                continue
            update = response.update
            ack = pb.Ack(nonce=response.nonce, backend=update.backend, version=update.version)
            answers.append(pb.SubscribeRequest(ack=ack))
            if update.backend.name == BIG and HOST in update.snapshot:
                at = update.snapshot.find(HOST) + len(HOST) - len(MARK)
                fleet.saw(update.snapshot[at : update.snapshot.index(b'"', at)].decode(), number)
        if answers:
            await call.write(pb.RequestBatch(requests=answers))


def rss_mib(pid: int) -> tuple[float, float]:
    """Return a process's resident memory now and at its most, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith("Vm")}
    return found["VmRSS"] / 1024, found["VmHWM"] / 1024


def cpu_s(pid: int) -> float:
    """Return the processor time a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def metric(port: int, name: str) -> dict[str, float]:
    """Return every sample of the operator's metrics whose line starts with *name*."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith(name)
    }


def quantile(values: list[float], share: float) -> float:
    """Return the value below which *share* of *values* lie."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run everything and return the figures."""
    async with running_api() as api:
        # Real bookmarks come once a minute; the tests' pace would only cost this process.
        api.bookmark_every = 10.0
        populate(api, arguments.backends, arguments.each)
        push, http = reserved_port(), reserved_port()
        here, there = multiprocessing.Pipe()
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            operator = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "sglr_operator", "run"),
                *("--kubeconfig", kubeconfig(api, Path(folder)), "--log-level", "WARNING"),
                *("--push-address", f"127.0.0.1:{push}", "--http-address", f"127.0.0.1:{http}"),
                cwd=ROOT,
            )
            fleet = multiprocessing.get_context("spawn").Process(
                target=routers, args=(push, arguments.routers, arguments.real, there)
            )
            fleet.start()
            try:
                return await _figures(arguments, api, operator.pid, http, here, began)
            finally:
                fleet.terminate()
                operator.terminate()
                await operator.wait()
                fleet.join(10)


async def _figures(
    arguments: argparse.Namespace,
    api: FakeApi,
    pid: int,
    http: int,
    pipe: Connection,
    began: float,
) -> dict[str, Any]:
    kind, at = await _receive(pipe)
    while kind != "synced":
        kind, at = await _receive(pipe)
    start, start_cpu = at - began, cpu_s(pid)
    await _settled(api)
    memory, settled_cpu = rss_mib(pid), cpu_s(pid)
    times: list[float] = []
    hosts, marker = [f"10.200.0.{i}" for i in range(99)], ""
    for number in range(arguments.writes):
        marker = f"{MARK}{number // 250}.{number % 250 + 1}"
        written = time.monotonic()
        put_slice(api, BIG, 0, [*hosts, marker])
        name, at = await _receive(pipe)
        while name != marker:
            name, at = await _receive(pipe)
        times.append((at - written) * 1000)
        await asyncio.sleep(arguments.pause)
    writes_cpu = cpu_s(pid) - settled_cpu
    sent = await asyncio.to_thread(metric, http, "sglr_operator_pushes_total")
    put_slice(api, BIG, 0, [*hosts, marker])
    await asyncio.sleep(2.0)
    after = await asyncio.to_thread(metric, http, "sglr_operator_pushes_total")
    update = 'sglr_operator_pushes_total{kind="update"}'
    histogram = {
        f"<= {edge} ms": sum(low < value <= edge for value in times)
        for low, edge in zip((0, *BUCKETS), BUCKETS, strict=False)
    }
    return {
        "backends": arguments.backends,
        "endpoints": (arguments.backends - 1) * arguments.each + 1000,
        "routers": arguments.routers,
        "of_them_with_the_products_intake": arguments.real,
        "start_to_synced_s": round(start, 2),
        "operator_cpu_until_synced_s": round(start_cpu, 2),
        "operator_cpu_until_settled_s": round(settled_cpu, 2),
        "operator_cpu_per_write_ms": round(writes_cpu * 1000 / arguments.writes, 1),
        "operator_rss_mib": round(memory[0], 1),
        "operator_rss_most_mib": round(memory[1], 1),
        "operator_rss_after_writes_mib": round(rss_mib(pid)[0], 1),
        "write_to_last_router_ms": {
            "p50": round(quantile(times, 0.5), 1),
            "p99": round(quantile(times, 0.99), 1),
            "most": round(max(times), 1),
        },
        "histogram": {name: count for name, count in histogram.items() if count},
        "updates_pushed_by_a_no_op_write": after[update] - sent[update],
        "operator_convergence_s": await asyncio.to_thread(
            metric, http, "sglr_operator_push_convergence_seconds"
        ),
        "load_average": os.getloadavg()[0],
    }


async def _receive(pipe: Connection) -> tuple[str, float]:
    async with asyncio.timeout(120):
        while not pipe.poll():  # noqa: ASYNC110  # a pipe has no event
            await asyncio.sleep(0.002)
    found: tuple[str, float] = pipe.recv()
    return found


async def _settled(api: FakeApi) -> None:
    """Wait until statuses are written and nothing is any more."""
    async with asyncio.timeout(120):
        before = -1
        while before != (now := api.count("patch", "sglangbackends")):
            before = now
            await asyncio.sleep(2.5)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--backends", type=int, default=1000)
    parser.add_argument("--each", type=int, default=4, help="endpoints of each small backend")
    parser.add_argument("--routers", type=int, default=50)
    parser.add_argument("--real", type=int, default=2, help="routers with the product's intake")
    parser.add_argument("--writes", type=int, default=200)
    parser.add_argument("--pause", type=float, default=0.2, help="seconds between two writes")
    print(json.dumps(asyncio.run(measure(parser.parse_args())), indent=2))  # noqa: T201  # its output


if __name__ == "__main__":
    main()
