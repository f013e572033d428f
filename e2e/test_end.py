"""What is left of a release."""

from __future__ import annotations

from steps import Release, run


def test_uninstall_leaves_nothing_but_the_crd_and_other_people_s_objects(settled: Release) -> None:
    """A23: a backend of a user stays, and so does its kind; nothing hangs on a finalizer."""
    namespace = settled.namespace
    namespace.apply(
        {
            "apiVersion": "sglr.dev/v1alpha1",
            "kind": "SGLangBackend",
            "metadata": {"name": "theirs"},
            "spec": {
                "model": {"name": "m"},
                "tokenizer": {"path": "/nowhere"},
                "workers": {"static": {"endpoints": [{"host": "10.0.0.1"}]}},
            },
        }
    )

    settled.uninstall()

    assert [b["metadata"]["name"] for b in namespace.all("sglb")] == ["theirs"]
    namespace.kubectl("delete", "sglb", "theirs", "--timeout=60s")
    run("kubectl", "delete", "namespace", namespace.name, "--timeout=120s")
