"""The README keeps its word: what it shows is run."""

import asyncio
import re
import sys
from pathlib import Path

import pytest
import yaml

from sglr_dataplane.sim.script import Play, Rule, Script
from sglr_proto.backend import read_manifests
from support.router import DEMO_MODEL, running_router
from support.sim import sim_worker

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()


def _block(language: str) -> str:
    """Return the README's only block of *language*."""
    (block,) = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    return str(block)


def test_the_manifest_is_valid() -> None:
    """The YAML is a backend that the router reads."""
    (backend,) = read_manifests(_block("yaml"))

    assert backend.spec.model.name == "qwen"


@pytest.mark.processes
@pytest.mark.timeout(60)
async def test_the_python_example_prints_the_answer(tmp_path: Path) -> None:
    """The SDK example runs as it stands, but for the port."""
    script = Script(rules=(Rule(play=Play(text="Hello to you.")),))
    async with sim_worker(script, model_name="qwen") as worker:
        document = yaml.safe_load(_block("yaml"))
        host, _, port = worker.address.rpartition(":")
        document["spec"]["workers"]["static"]["endpoints"] = [{"host": host, "port": int(port)}]
        document["spec"]["tokenizer"] = {"path": str(DEMO_MODEL)}
        async with running_router(tmp_path, yaml.safe_dump(document)) as router:
            program = _block("python").replace("http://127.0.0.1:8080", router.url)
            example = await asyncio.create_subprocess_exec(
                sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
            )
            printed, _ = await asyncio.wait_for(example.communicate(), 30)

    assert example.returncode == 0
    assert printed.decode() == "Hello to you."


def test_every_link_leads_somewhere() -> None:
    """Relative links name files of the checkout."""
    root = Path(__file__).resolve().parent.parent
    targets = [t for t in re.findall(r"\]\(([^)]+)\)", README) if "://" not in t]

    assert targets
    assert [target for target in targets if not (root / target).exists()] == []


def test_the_quoted_commands_exist() -> None:
    """`make` targets that the README names are in the Makefile."""
    makefile = (Path(__file__).resolve().parent.parent / "Makefile").read_text()
    named = set(re.findall(r"\bmake ([a-z0-9-]+)", README))

    assert {"demo", "test", "check", "help"} <= named
    assert [name for name in named if f"\n{name}:" not in makefile] == []
