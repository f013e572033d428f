"""What the documents name exists, and what exists and matters is in the documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sglr_proto.backend import read_manifests
from support.charts import CHART, EVERYTHING, ROOT, chart, kinds, one, render

DOCS = [
    ROOT / "docs" / f"{name}.md"
    for name in ("install", "operate", "troubleshoot", "architecture", "migrate")
]


def text(name: str) -> str:
    """Return a document."""
    return (ROOT / "docs" / f"{name}.md").read_text()


@pytest.mark.parametrize("document", DOCS, ids=lambda path: path.stem)
def test_links_lead_somewhere(document: Path) -> None:
    """Each relative link is a file of the checkout."""
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())

    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCS, ids=lambda path: path.stem)
def test_values_in_words_are_values_of_the_chart(document: Path) -> None:
    """A renamed value is renamed in the documents, too."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    named = re.findall(r"`([a-z][A-Za-z]+(?:\.[A-Za-z]+)+)(?:: [^`]+)?`", document.read_text())

    for path in named:
        if path.split(".")[0] in defaults:
            found = defaults
            for key in path.split("."):
                assert key in found, path
                found = found[key]


def test_backends_that_replace_another_router_s_settings_are_backends() -> None:
    """Each YAML block of the page passes the router's own decoder."""
    blocks = re.findall(r"```yaml\n(.*?)```", text("migrate"), re.DOTALL)

    assert len(blocks) == 2
    for block in blocks:
        read_manifests(block)


def test_fields_that_replace_another_router_s_settings_exist() -> None:
    """A path in the right column that begins like a field of the spec is one."""
    crd = yaml.safe_load((CHART / "crds" / "sglr.dev_sglangbackends.yaml").read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    rows = re.findall(r"^\|[^\n]*?\|([^|\n]*)\|$", text("migrate"), re.MULTILINE)
    named = [path for row in rows for path in re.findall(r"`([A-Za-z]+(?:\.[A-Za-z]+)+)", row)]
    of_the_spec = [path for path in named if path.split(".")[0] in spec["properties"]]

    assert len(of_the_spec) > 20
    for path in of_the_spec:
        found = spec
        for key in path.split("."):
            assert key in found.get("properties", {}), path
            found = found["properties"][key]


def test_the_quick_start_names_what_the_chart_makes() -> None:
    """README's commands for Kubernetes, which the end-to-end suite runs, are about real objects."""
    readme = (ROOT / "README.md").read_text().split("## On Kubernetes", 1)[1].split("\n## ")[0]
    named = set(re.findall(r"\b(deployment|sglb|service)/([a-z-]+)", readme))
    made = kinds(render({"demo": {"enabled": True}}))

    assert {kind for kind, _ in named} == {"deployment", "sglb", "service"}
    whole = {"deployment": "Deployment", "sglb": "SGLangBackend", "service": "Service"}
    assert [n for n in sorted(named) if (whole[n[0]], n[1]) not in made] == []


def test_every_reason_of_a_condition_that_is_not_true_is_explained() -> None:
    """Whoever reads a reason finds what to do about it."""
    sources = "".join(p.read_text() for p in (ROOT / "operator/sglr_operator").rglob("*.py"))
    reasons = set(re.findall(r'_Claim\(\s*\w+,\s*"(?:False|Unknown)",\s*"(\w+)"', sources))
    reasons |= set(re.findall(r'RefProblem\(\s*(?:reason=)?"(\w+)"', sources))

    assert {"InvalidSpec", "NoEndpoints", "RouterRejected", "ServiceNotFound"} <= reasons
    assert [reason for reason in sorted(reasons) if reason not in text("troubleshoot")] == []


def test_every_code_that_clients_get_is_explained() -> None:
    """Whoever reads a code in an answer finds what it means and what to do."""
    modules = (ROOT / "dataplane" / "sglr_dataplane").rglob("*.py")
    sources = "".join(path.read_text() for path in modules if "sim" not in path.parts)
    known = set(re.findall(r'\bcode(?:: [^=\n]+)? ?= ?"([a-z_]+)"', sources))
    explained = re.findall(r"^\| [0-9, ]+ \| ([a-z_, ]+) \|", text("troubleshoot"), re.MULTILINE)

    assert {"invalid_value", "no_available_workers", "render_budget_exceeded"} <= known
    assert sorted(known - set(", ".join(explained).split(", "))) == []


def test_every_alert_is_explained() -> None:
    """The page of alerts is the chart's own list."""
    rules = one(render(EVERYTHING), "PrometheusRule", "sglr")["spec"]["groups"][0]["rules"]

    assert [rule["alert"] for rule in rules if rule["alert"] not in text("operate")] == []


def test_the_reference_names_every_value() -> None:
    """It is generated; a value that is missing there is missing in its source."""
    table = (ROOT / "docs" / "reference" / "values.md").read_text()

    def leaves(node: dict[str, dict[str, object]], prefix: str = "") -> Iterator[str]:
        for key, value in node.items():
            if "properties" in value:
                yield from leaves(value["properties"], f"{prefix}{key}.")  # type: ignore[arg-type]  # a schema
            else:
                yield prefix + key

    schema = chart().schema or {}
    missing = [p for p in leaves(schema["properties"]) if f"| `{p}` |" not in table]
    assert missing == ["global"]
