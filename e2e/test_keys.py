"""Callers' keys change while routers run: those of one backend, and those of the routers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import openai
from load import Load, flowing
from steps import Json, Release, ask, eventually, values


def test_callers_keys_of_a_backend_are_rotated_without_a_restart(settled: Release) -> None:
    """Old, both, new: each change of the Secret holds at once, in routers that go on running."""
    url, namespace = settled.url(), settled.namespace
    before = {pod: namespace.restarts(pod) for pod in namespace.pods("router")}

    def admits(key: str) -> bool:
        try:
            return "Hello" in ask(url, "demo", "Hello?", key=key)
        except openai.NotFoundError:
            # Who has no key for a backend is not told that there is one.
            return False

    def secret(**keys: str) -> Json:
        metadata = {"name": "callers", "labels": {"sglr.dev/for-routers": "true"}}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": keys}

    with (
        settled.applied(secret(old="sk-old")),
        settled.changed({"auth": {"keySecretRefs": [{"name": "callers"}]}}),
    ):
        eventually(lambda: not admits("none"), 150, "a key is needed")
        assert admits("sk-old")
        assert not admits("sk-new")
        namespace.apply(secret(old="sk-old", new="sk-new"))
        eventually(lambda: admits("sk-new"), 150, "the new key is good")
        assert admits("sk-old")
        namespace.replace(secret(new="sk-new"))
        eventually(lambda: not admits("sk-old"), 150, "the old key is refused")
        assert admits("sk-new")

    eventually(lambda: admits("none"), 150, "no key is needed")
    assert before == {pod: namespace.restarts(pod) for pod in namespace.pods("router")}


def a_keyring(*keys: str) -> Json:
    """Return the Secret with the routers' keys: one that stays, and *keys* of another caller."""
    listed = [{"name": "steady", "key": "sk-steady"}]
    listed += [{"name": "team", "key": key} for key in keys]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "keyring"},
        "stringData": {"keys.yaml": json.dumps({"keys": listed})},
    }


@contextmanager
def guarded(release: Release) -> Iterator[None]:
    """Have the routers ask for the keyring's keys for the time of a block."""
    keep = "--reset-then-reuse-values"
    release.upgrade(keep, *values(router__apiKeys__secretName="keyring"))
    try:
        release.rolled_out()
        yield
    finally:
        release.upgrade(keep, *values(router__apiKeys__secretName=""))
        release.rolled_out()


def opened(release: Release, key: str) -> list[str]:
    """Return the routers that let *key* in, each asked for itself."""
    ask = (
        "import urllib.request as u, urllib.error as e\n"
        f"r = u.Request('http://127.0.0.1:8080/v1/models', headers={{'x-api-key': {key!r}}})\n"
        "try: print(u.urlopen(r).status)\n"
        "except e.HTTPError as error: print(error.code)"
    )
    answers = {
        pod: release.namespace.kubectl("exec", pod, "--", "python3", "-c", ask).strip()
        for pod in release.namespace.pods("router")
    }
    assert set(answers.values()) <= {"200", "401"}, answers
    return [pod for pod, answer in answers.items() if answer == "200"]


def test_the_routers_keys_are_rotated_under_load(settled: Release) -> None:
    """The old key's streams end whole and its next ones are 401; no other caller notices."""
    namespace = settled.namespace
    with settled.applied(a_keyring("sk-old")), guarded(settled):
        routers = namespace.pods("router")
        before = {pod: namespace.restarts(pod) for pod in routers}
        assert opened(settled, "none") == []
        assert opened(settled, "sk-old") == routers
        assert opened(settled, "sk-new") == []

        with (
            flowing(settled, key="sk-steady"),
            Load(settled.url(), "demo", key="sk-old", streams=2) as old,
        ):
            old.keep_going()
            namespace.apply(a_keyring("sk-old", "sk-new"))
            # A kubelet looks each minute, and at what it keeps from the API server.
            eventually(lambda: opened(settled, "sk-new") == routers, 150, "the new key is good")
            old.keep_going()
            namespace.apply(a_keyring("sk-new"))
            eventually(lambda: opened(settled, "sk-old") == [], 150, "the old key is refused")
            eventually(lambda: old.tally.refused == 2, 150, "both its clients are refused")
            assert old.tally.failures == []

            assert opened(settled, "sk-new") == routers
            assert "Hello" in ask(settled.url(), "demo", "Hello?", key="sk-new")
        assert before == {pod: namespace.restarts(pod) for pod in namespace.pods("router")}
