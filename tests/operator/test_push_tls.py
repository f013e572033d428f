"""The push stream under TLS: who is let in, and that a renewed certificate needs no restart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sglr_dataplane.fleet.intake_channel import authorization
from sglr_dataplane.fleet.intake_config import IntakeConfig
from sglr_operator.config import Address, PushConfig
from sglr_operator.leadership import _tls
from sglr_operator.push import new_server
from support.certificates import authority, issue
from support.kube_wait import until
from support.push import CONFIG, Operator, an_operator, routing


def speaking() -> Operator:
    """Return an operator with one backend to tell."""
    operator = an_operator()
    operator.say("a", "10.0.0.1")
    operator.publisher.complete(frozenset({"inference/a"}))
    return operator


def failures(registry: object) -> float:
    """Return how often a router could not subscribe."""
    value = registry.get_sample_value("sglr_intake_failures_total")  # type: ignore[attr-defined]  # a CollectorRegistry
    return float(value or 0.0)


@pytest.mark.parametrize(
    ("shown", "let_in"), [("router", True), ("stranger", False), (None, False)]
)
async def test_mutual_tls_lets_in_routers_of_our_authority_only(
    shown: str | None,
    let_in: bool,  # the table's column
    tmp_path: Path,
) -> None:
    """A certificate of another authority, or none, hears nothing."""
    authority(tmp_path, "ca")
    authority(tmp_path, "other")
    server_certificate, server_key = issue(tmp_path, "server", "ca")
    issue(tmp_path, "router", "ca")
    issue(tmp_path, "stranger", "other")
    push = replace(
        CONFIG,
        certificate=str(server_certificate),
        key=str(server_key),
        client_ca=str(tmp_path / "ca.crt"),
        auth="mtls",
    )

    def change(config: IntakeConfig) -> IntakeConfig:
        config = replace(config, ca=tmp_path / "ca.crt")
        if shown is None:
            return config
        return replace(config, certificate=tmp_path / f"{shown}.crt", key=tmp_path / f"{shown}.key")

    await _judge(push, change, let_in=let_in)


@pytest.mark.parametrize(("trusted", "let_in"), [("ca", True), ("other", False)])
async def test_a_router_hears_only_an_operator_it_trusts(
    trusted: str,
    let_in: bool,  # the table's column
    tmp_path: Path,
) -> None:
    """An operator whose certificate comes from another authority is not heard."""
    authority(tmp_path, "ca")
    authority(tmp_path, "other")
    certificate, key = issue(tmp_path, "server", "ca")
    push = replace(CONFIG, certificate=str(certificate), key=str(key))

    await _judge(
        push, lambda config: replace(config, ca=tmp_path / f"{trusted}.crt"), let_in=let_in
    )


async def _judge(
    push: PushConfig, change: Callable[[IntakeConfig], IntakeConfig], *, let_in: bool
) -> None:
    operator = speaking()
    push = replace(push, address=Address("127.0.0.1", 0))
    server, port = new_server(operator.service, push, _tls(push))
    await server.start()
    try:
        async with routing(port, change=change) as router:
            if let_in:
                await until(lambda: router.table() == {"a": ["10.0.0.1"]}, what="heard")
            else:
                registry = router.metrics.registry
                await until(lambda: failures(registry) >= 2, what="refused twice")

                assert router.applied == []
    finally:
        await server.stop(0)


def test_a_token_is_never_sent_in_the_clear(tmp_path: Path) -> None:
    """Without TLS a configured token stays at home; with it the file is read at each connect."""
    token = tmp_path / "token"
    token.write_text("secret\n")
    plain = IntakeConfig(operator="o:1", router="r", pod_uid="u", token=token)
    secure = replace(plain, ca=tmp_path / "ca.crt")

    assert authorization(plain) == ()
    assert authorization(secure) == (("authorization", "Bearer secret"),)
    token.write_text("renewed")
    assert authorization(secure) == (("authorization", "Bearer renewed"),)
