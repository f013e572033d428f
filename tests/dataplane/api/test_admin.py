"""The admin port, ``sglr top``, and TLS towards clients."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from pathlib import Path

import httpx2
import pytest

import support.h2peer
from sglr_dataplane.api.admin import AdminRefusedError, serving_admin
from sglr_dataplane.api.drain import Drain
from sglr_dataplane.api.server import TlsFilesError, new_server
from sglr_dataplane.cli import main
from sglr_dataplane.config import AdminConfig, DrainSettings, ServerTls
from sglr_dataplane.fleet.breaker import Outcome
from sglr_dataplane.fleet.registry import Registry
from sglr_dataplane.sim.script import Play
from sglr_proto.backend import Admission, Traffic
from support.engines import FakeClock, ScriptedEngine
from support.fleets import a_backend, a_registry
from support.router import a_worker, eventually, manifest, running_router

PEMS = Path(support.h2peer.__file__).parent / "h2tls"
REQUEST = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}


def a_fleet() -> Registry:
    """Return a worker that is well and one whose breaker is open."""
    registry = a_registry({"w1": ScriptedEngine(), "w2": ScriptedEngine()}, clock=FakeClock(0.0))
    well, ill = registry.workers()
    well.begin()
    well.answered(95.0, 0.123)
    for _ in range(5):
        ill.breaker.leave(ill.breaker.enter(0), Outcome.FAILED, 0)
    ill.doubted("The worker cannot be reached.")
    return registry


async def test_the_admin_port_shows_every_worker_as_it_is() -> None:
    """State, breaker, load and time to the first token, by backend."""
    drain = Drain(DrainSettings())
    async with (
        serving_admin(AdminConfig(port=0), a_fleet(), drain, clock=lambda: 100.0) as address,
        httpx2.AsyncClient(base_url=f"http://{address}") as http,
    ):
        answer = await http.get("/debug/workers")

    [backend] = answer.json()["backends"]
    well, ill = backend["workers"]
    assert (backend["backend"], backend["model"]) == ("default/chat", "m")
    assert (well["state"], well["breaker"], well["in_flight"]) == ("ready", "closed", 1)
    assert (well["first_token_seconds"], well["answered_seconds_ago"]) == (0.123, 5.0)
    assert (ill["breaker"], ill["suspect"], ill["failures_in_a_row"]) == ("open", True, 5)
    assert ill["problem"] == "The worker cannot be reached."
    assert (backend["names"], backend["weight"], backend["priority"]) == (["m"], 1, 0)
    assert (well["serves"], well["version"], well["protocol"]) == ("m", "1", "GRPC")
    assert (well["load"], well["connections_lost"], well["adapters"]) == (1, 0, [])


async def test_the_admin_port_is_as_hard_as_the_main_one() -> None:
    """No offer to upgrade confuses it, heads have a limit, and it does not say what it runs on."""
    drain = Drain(DrainSettings())
    async with (
        serving_admin(AdminConfig(port=0), a_fleet(), drain, clock=lambda: 100.0) as address,
        httpx2.AsyncClient(base_url=f"http://{address}") as http,
    ):
        offered = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c"}
        upgraded = await http.get("/debug/workers", headers=offered)
        large = await http.get("/debug/workers", headers={"x-large": "x" * 70_000})

    assert upgraded.status_code == 200
    assert "server" not in upgraded.headers
    assert large.status_code == 431


async def test_beyond_loopback_a_token_is_needed(tmp_path: Path) -> None:
    """Without one the router does not start; with one nobody is answered without it."""
    token = tmp_path / "token"
    token.write_text("secret\n")
    drain, registry = Drain(DrainSettings()), a_fleet()
    with pytest.raises(AdminRefusedError, match="needs --admin-token-file"):
        async with serving_admin(AdminConfig(0, "0.0.0.0"), registry, drain, clock=float):
            pass
    config = AdminConfig(port=0, token_file=str(token))
    async with (
        serving_admin(config, registry, drain, clock=float) as address,
        httpx2.AsyncClient(base_url=f"http://{address}") as http,
    ):
        answers = [
            await http.get("/debug/workers", headers={"Authorization": shown})
            for shown in ("", "Bearer wrong", "Bearer secret")
        ]

    assert [answer.status_code for answer in answers] == [401, 401, 200]


async def test_top_shows_the_fleet(capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each worker, and why one is not well."""
    drain = Drain(DrainSettings())
    async with serving_admin(AdminConfig(port=0), a_fleet(), drain, clock=lambda: 100.0) as address:
        status = await asyncio.to_thread(main, ["top", "--once", "--url", f"http://{address}"])
    shown = capsys.readouterr().out

    assert status == 0
    lines = shown.splitlines()
    assert "default/chat  model m  RoundRobin  2/2 ready  0 run, 0 wait" in lines
    [well] = [line for line in lines if line.startswith("w1 ")]
    assert well.split() == ["w1", "ready", "closed", "1", "1", "8", "123ms", "5s"]
    [ill] = [line for line in lines if line.startswith("w2 ")]
    assert ill.split() == ["w2", "ready?", "open", "0", "0", "8", "-", "-"]
    assert "  The worker cannot be reached." in lines


async def test_top_shows_a_backends_share_where_it_has_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Weight and priority, and the limit that the backend itself sets."""
    canary = a_backend(
        traffic=Traffic(weight=3, priority=1), admission=Admission(max_inflight_per_endpoint=5)
    )
    registry = a_registry({"w1": ScriptedEngine()}, backend=canary)
    drain = Drain(DrainSettings())
    async with serving_admin(AdminConfig(port=0), registry, drain, clock=lambda: 1.0) as address:
        await asyncio.to_thread(main, ["top", "--once", "--url", f"http://{address}"])
    lines = capsys.readouterr().out.splitlines()

    assert (
        "default/chat  model m  weight 3, priority 1  RoundRobin  1/1 ready  0 run, 0 wait" in lines
    )
    assert next(line for line in lines if line.startswith("w1 ")).split()[5] == "5"


def test_top_says_when_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """A sentence and status 1, no traceback; 2 for what is no URL."""
    status = main(["top", "--once", "--url", "http://127.0.0.1:1"])
    wrong = main(["top", "--once", "--url", "127.0.0.1:1"])

    assert (status, wrong) == (1, 2)
    assert "http://127.0.0.1:1 does not answer" in capsys.readouterr().err


def a_client(certificate: str | None = None) -> ssl.SSLContext:
    """Return what a client trusts, and shows."""
    context = ssl.create_default_context(cafile=str(PEMS / "ca.pem"))
    if certificate is not None:
        context.load_cert_chain(PEMS / certificate)
    return context


async def test_clients_are_served_over_tls_and_must_show_who_they_are(tmp_path: Path) -> None:
    """Mutual TLS: with a certificate of the authority a chat is answered, without one nothing is."""
    tls = ServerTls(
        str(PEMS / "worker.pem"), str(PEMS / "worker.pem"), client_ca=str(PEMS / "ca.pem")
    )
    async with (
        a_worker(Play(text="Hi.")) as worker,
        running_router(tmp_path, manifest(worker.address), ready=False, tls=tls) as router,
    ):
        url = router.url.replace("http:", "https:")
        async with httpx2.AsyncClient(base_url=url, verify=a_client("router.pem")) as known:
            await eventually(lambda: is_ready(known))
            answer = await known.post("/v1/chat/completions", json=REQUEST)
        async with httpx2.AsyncClient(base_url=url, verify=a_client()) as unknown:
            with pytest.raises(httpx2.TransportError):
                await unknown.get("/livez")

    assert answer.json()["choices"][0]["message"]["content"] == "Hi."


async def is_ready(http: httpx2.AsyncClient) -> bool:
    """Return whether the router is ready."""
    return (await http.get("/readyz")).status_code == 200


async def test_a_new_certificate_is_shown_without_a_restart(tmp_path: Path) -> None:
    """The next handshake has it."""
    for name in ("pair.pem",):
        shutil.copy(PEMS / "worker.pem", tmp_path / name)
    tls = ServerTls(str(tmp_path / "pair.pem"), str(tmp_path / "pair.pem"))
    async with (
        a_worker(Play(text="Hi.")) as worker,
        running_router(tmp_path, manifest(worker.address), ready=False, tls=tls) as router,
    ):
        port = int(router.url.rpartition(":")[2])
        before = await shown(port)
        shutil.copy(PEMS / "router.pem", tmp_path / "next.pem")
        (tmp_path / "next.pem").replace(tmp_path / "pair.pem")
        await eventually(lambda: changed(port, before))

    assert before == der("worker.pem")


async def changed(port: int, before: bytes) -> bool:
    """Return whether the certificate is the router's now."""
    now = await shown(port)
    return now != before and now == der("router.pem")


async def shown(port: int) -> bytes:
    """Return the certificate that is shown at *port*."""
    return await asyncio.to_thread(_shown, port)


def _shown(port: int) -> bytes:
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port), timeout=5))


def der(name: str) -> bytes:
    """Return the first certificate in a file."""
    text = (PEMS / name).read_text()
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    return ssl.PEM_cert_to_DER_cert(text[text.index(begin) : text.index(end) + len(end)])


def test_a_certificate_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    """One sentence, before anything listens."""
    missing = str(tmp_path / "none.pem")

    async def app(*_: object) -> None:
        """Never be called."""

    with pytest.raises(TlsFilesError, match="cannot be used"):
        new_server(app, Drain(DrainSettings()), ServerTls(missing, missing))
