"""The published OpenAPI document is true: of the routes, of the fields, and of the answers."""

from __future__ import annotations

import asyncio
import importlib
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from sglr_dataplane.api.front_door import FrontDoor
from sglr_dataplane.api.openapi import document
from sglr_dataplane.api.schema.chat import ChatBody
from sglr_dataplane.app import Router
from sglr_dataplane.config import RouterConfig
from sglr_dataplane.sim.script import Play
from support.router import a_worker, manifest, running_router


async def test_every_route_is_documented_and_no_other(tmp_path: Path) -> None:
    """Paths and methods are those that the application has."""
    router = Router(RouterConfig(manifest=str(tmp_path / "none.yaml")))
    assert isinstance(router.app, FrontDoor)
    served = {
        (re.sub(r"\{(\w+):path\}", r"{\1}", path), method)
        for path, method in router.app.served
        if method != "HEAD"
    }
    documented = {
        (path, method.upper())
        for path, item in document()["paths"].items()
        for method in item
        if method != "parameters"
    }

    assert documented == served


def test_every_honoured_field_is_described() -> None:
    """What is decoded is in the schema, with what it does."""
    properties = document()["components"]["schemas"]["ChatBody"]["properties"]

    assert set(properties) == {field.name for field in msgspec.structs.fields(ChatBody)}
    assert all(prop.get("description") for prop in properties.values())


def test_every_reference_leads_somewhere() -> None:
    """No schema names one that is not there."""
    text = msgspec.json.encode(document()).decode()
    names = set(re.findall(r'"#/components/schemas/(\w+)"', text))

    assert names <= set(document()["components"]["schemas"])
    assert "ChatBody" in names


# The router under test draws random numbers in its own thread, meanwhile.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
@pytest.mark.timeout(120)
async def test_random_requests_are_answered_as_documented(tmp_path: Path) -> None:
    """Whatever fits the schemas has a documented status, media type and body; nothing is a 500."""
    schemathesis: Any = pytest.importorskip("schemathesis")
    async with (
        a_worker(Play(text="ok")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        published = (await router.http.get("/openapi.json")).json()
        schema = schemathesis.openapi.from_dict(published)
        for found in schema.get_all_operations():
            await asyncio.to_thread(_examine, found.ok(), router.url)


def _examine(operation: Any, url: str) -> None:
    """Send some requests of *operation*; each answer must be as documented, and none a 500.

    Not every request that fits a schema is valid: ranges that depend on the model are told by 400.
    """
    known: Any = importlib.import_module("schemathesis.specs.openapi.checks")
    checks = [
        known.status_code_conformance,
        known.content_type_conformance,
        known.response_schema_conformance,
    ]

    @given(case=operation.as_strategy())
    @settings(
        max_examples=8,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def examined(case: Any) -> None:
        response = case.call(base_url=url)
        case.validate_response(response, checks=checks)
        assert response.status_code != 500

    examined()
