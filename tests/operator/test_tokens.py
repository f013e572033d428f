"""Which tokens let a router in."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.aio.client import ApiClient, Configuration

from sglr_operator.kube import Kube
from sglr_operator.tokens import TokenReviewer
from support.kube_api import running_api

GOOD: dict[str, Any] = {
    "authenticated": True,
    "audiences": ["sglr-operator"],
    "user": {"username": "system:serviceaccount:ml:router"},
}


@pytest.mark.parametrize(
    ("status", "accounts", "words"),
    [
        (GOOD, (), None),
        (GOOD, ("ml:router",), None),
        (GOOD, ("ml:other",), "may not subscribe"),
        (GOOD | {"user": {"username": "admin"}}, ("ml:router",), "may not subscribe"),
        (GOOD | {"audiences": ["https://kubernetes.default.svc"]}, (), "not made for audience"),
        # A server that knows no audiences vouches for any token.
        ({"authenticated": True, "user": {"username": "x"}}, (), "not made for audience"),
        ({"authenticated": False}, (), "does not know"),
        ({}, (), "does not know"),
    ],
)
async def test_a_token_is_good_for_its_audience_and_account_only(
    status: dict[str, Any], accounts: tuple[str, ...], words: str | None
) -> None:
    """The API server's word, the audience and the account must all fit."""
    async with running_api() as api, ApiClient(Configuration(host=api.url)) as client:
        api.tokens["t"] = status
        problem = await TokenReviewer(Kube(client), "sglr-operator", accounts)("t")

    assert (problem is None) == (words is None)
    assert words is None or words in (problem or "")


async def test_an_apiserver_that_does_not_answer_lets_nobody_in() -> None:
    """No verdict is no entry; the router dials again."""
    async with running_api() as api, ApiClient(Configuration(host=api.url)) as client:
        api.tokens["t"] = GOOD
        api.fail("500", "tokenreviews")
        problem = await TokenReviewer(Kube(client), "sglr-operator")("t")

    assert problem == "The API server did not judge the token; dial again."
