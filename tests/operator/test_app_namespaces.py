"""An operator of several namespaces."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sglr_operator.config import OperatorConfig
from support.kube_api import running_api
from support.kube_objects import a_document
from support.kube_wait import until
from support.operators import conditions, operating
from support.push import routing


def two(config: OperatorConfig) -> OperatorConfig:
    """Watch two namespaces."""
    return replace(config, namespaces=("blue", "green"))


async def test_a24_each_of_its_namespaces_is_served_and_no_other(tmp_path: Path) -> None:
    """One router hears both; a third namespace is neither served nor written to."""
    async with running_api() as api, operating(api, tmp_path, two) as running:
        for number, namespace in enumerate(("blue", "green", "red")):
            host = f"10.0.0.{number}"
            document = a_document(
                {"static": {"endpoints": [{"host": host}]}},
                name=f"in-{namespace}",
                namespace=namespace,
                model={"name": namespace},
            )
            api.put("sglangbackends", document)
        async with routing(await running.serves()) as router:
            await until(
                lambda: router.table() == {"in-blue": ["10.0.0.0"], "in-green": ["10.0.0.1"]},
                what="both",
            )

            def is_told(namespace: str) -> bool:
                found = conditions(api, f"in-{namespace}", namespace).get("Ready", {})
                return bool(found.get("status") == "True")

            await until(lambda: is_told("blue") and is_told("green"), what="Ready")

            assert conditions(api, "in-red", "red") == {}
            asked = {call.namespace for call in api.calls if call.verb in {"list", "watch"}}
            assert asked <= {"blue", "green", ""}
            everywhere = {c.plural for c in api.calls if c.verb == "list" and not c.namespace}
            assert "pods" not in everywhere
