"""A23: an upgraded release brings its custom resource definition along, and never takes it away."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from support.charts import CHART, NAMESPACE, ROOT, Object, files, one, render
from support.jobs import FakeApi

COLLECTION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAME = "sglangbackends.sglr.dev"


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the job's program, as Python imports it where it is mounted."""
    monkeypatch.syspath_prepend(str(CHART / "files" / "jobs"))
    return importlib.import_module("apply_crd")


@pytest.fixture
def apply(job: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a function that runs the job with a definition against an API server."""

    def run(api: FakeApi, definition: Object) -> None:
        path = tmp_path / "definition.json"
        path.write_text(json.dumps(definition))
        monkeypatch.setattr(job.Api, "in_cluster", lambda: api)
        monkeypatch.setattr("sys.argv", ["apply_crd.py", str(path)])
        job.main()

    return run


def mounted() -> Object:
    """Return the definition that the job is given."""
    found: Object = json.loads(one(render(), "ConfigMap", "sglr-crd")["data"]["definition.json"])
    return found


def test_the_job_brings_this_release_s_definition() -> None:
    """The same as in crds/, value for value."""
    (path,) = (ROOT / "crds").glob("*.yaml")

    assert mounted() == yaml.safe_load(path.read_text())


def test_it_runs_before_an_upgrade_and_only_then() -> None:
    """At the installation Helm itself creates the definition; afterwards it never touches it."""
    for kind in ("ConfigMap", "ServiceAccount", "Job"):
        annotations = one(render(), kind, "sglr-crd")["metadata"]["annotations"]
        assert annotations["helm.sh/hook"] == "pre-upgrade"


def test_a_new_field_is_there_after_the_upgrade(apply: Any) -> None:
    """The definition of an older release is replaced; what others wrote on it stays."""
    api = FakeApi()
    old = mounted()
    properties = old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    del properties["spec"]["properties"]["routing"]
    old["metadata"] |= {
        "resourceVersion": "7",
        "labels": {"theirs": "1"},
        "annotations": {"argocd": "x"},
    }
    old["status"] = {"storedVersions": ["v1alpha1"]}
    api.objects[f"{COLLECTION}/{NAME}"] = old

    apply(api, mounted())

    new = api.objects[f"{COLLECTION}/{NAME}"]
    assert new["spec"] == mounted()["spec"]
    assert new["status"] == {"storedVersions": ["v1alpha1"]}
    assert new["metadata"]["resourceVersion"] == "7"
    assert new["metadata"]["labels"]["theirs"] == "1"
    assert new["metadata"]["annotations"]["argocd"] == "x"


def test_a_missing_definition_is_created(apply: Any) -> None:
    """Somebody deleted it by hand: the upgrade puts it back."""
    api = FakeApi()

    apply(api, mounted())

    assert api.objects[f"{COLLECTION}/{NAME}"] == mounted()


def test_a_write_of_somebody_else_is_no_failure(apply: Any) -> None:
    """Two controllers write at once: it reads again and wins the next time."""
    api = FakeApi()
    api.objects[f"{COLLECTION}/{NAME}"] = {"metadata": {"name": NAME}, "spec": {}}
    api.conflicts = 2

    apply(api, mounted())

    assert api.objects[f"{COLLECTION}/{NAME}"]["spec"] == mounted()["spec"]


def test_somebody_who_writes_all_the_time_ends_the_job(apply: Any) -> None:
    """It says so instead of going round for ever."""
    api = FakeApi()
    api.objects[f"{COLLECTION}/{NAME}"] = {"metadata": {"name": NAME}, "spec": {}}
    api.conflicts = 99

    with pytest.raises(SystemExit, match="somebody else writes"):
        apply(api, mounted())


def test_the_job_has_rights_on_this_definition_alone() -> None:
    """It may create definitions, and read and replace ours; it may delete none."""
    role = one(render(), "ClusterRole", f"{NAMESPACE}-sglr-crd")

    assert role["rules"] == [
        {
            "apiGroups": ["apiextensions.k8s.io"],
            "resources": ["customresourcedefinitions"],
            "verbs": ["create"],
        },
        {
            "apiGroups": ["apiextensions.k8s.io"],
            "resources": ["customresourcedefinitions"],
            "resourceNames": [NAME],
            "verbs": ["get", "update"],
        },
    ]


@pytest.mark.parametrize(
    "values", [{"watch": {"clusterWide": False}}, {"crds": {"upgradeJob": False}}]
)
def test_without_the_job_the_notes_say_what_to_run(values: Object) -> None:
    """A namespaced release may not touch the definition: a person does, with one command."""
    assert not [o for o in render(values) if o["metadata"]["name"] == "sglr-crd"]
    assert "kubectl apply --server-side -f deploy/helm/sglr/crds/" in files(values)["NOTES.txt"]


def test_the_definition_survives_an_uninstall() -> None:
    """No template makes it: what Helm did not template it does not delete, nor users' backends."""
    assert not [o for o in render() if o["kind"] == "CustomResourceDefinition"]
