"""A23: a release takes the place of an older one under load, its definition included."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from load import Load, flowing
from steps import CHART, Json, Release, eventually, values

NEW_FIELD = "rateLimit"
"""What the older definition does not know yet."""


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """Return the chart as an older release would have been: a version and a field less."""
    chart = tmp_path / "sglr"
    shutil.copytree(CHART, chart)
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    about |= {"version": "0.0.1", "appVersion": "0.0.1"}
    (chart / "Chart.yaml").write_text(yaml.safe_dump(about))
    (path,) = (chart / "crds").iterdir()
    definition = yaml.safe_load(path.read_text())
    del spec_of(definition)[NEW_FIELD]
    path.write_text(yaml.safe_dump(definition))
    return chart


def spec_of(definition: Json) -> Json:
    """Return the fields of a spec in a definition."""
    schema: Json = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    fields: Json = schema["properties"]["spec"]["properties"]
    return fields


def limited(release: Release) -> bool:
    """Give the demo's backend the new field; return whether the API server kept it."""
    release.patch_backend({NEW_FIELD: {"requestsPerMinute": 6000}})
    return NEW_FIELD in release.namespace.get("sglb", release.demo)["spec"]


def test_an_upgrade_from_an_older_release_loses_no_stream(settled: Release, older: Path) -> None:
    """Every pod is replaced while streams flow, and the new definition's field is there."""
    tag = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    settled.upgrade("--reset-then-reuse-values", *values(image__tag=tag), chart=older)
    settled.rolled_out()
    assert not limited(settled)

    with flowing(settled) as load:
        settled.upgrade("--reset-then-reuse-values", *values(image__tag=""))
        settled.rolled_out()
        load.keep_going()
        assert limited(settled)
        load.keep_going()

    settled.patch_backend({NEW_FIELD: None})


def test_an_upgrade_under_load_loses_no_stream(settled: Release, load: Load) -> None:
    """Settings change, every pod is replaced, the CRD job runs: nobody notices."""
    settled.upgrade("--reset-then-reuse-values", *values(push__audience="another"))
    settled.rolled_out()

    load.keep_going()
    eventually(
        lambda: settled.namespace.condition(settled.demo, "Ready")[0] == "True", 150, "still ready"
    )
