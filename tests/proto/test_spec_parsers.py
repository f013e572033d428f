"""``spec.parsers``: what may be written there, and what stands there when nothing is."""

from __future__ import annotations

import pytest

from sglr_proto.backend import (
    ManifestError,
    Parsers,
    ReasoningWhitespace,
    UnknownTools,
    read_manifests,
)

BEFORE = """
apiVersion: sglr.dev/v1alpha1
kind: SGLangBackend
metadata: {name: b}
spec:
  model: {name: m}
  workers: {static: {endpoints: [{host: h}]}}
"""


def test_by_default_all_is_told_by_the_template() -> None:
    """Detection, calls forwarded, whitespace kept."""
    (backend,) = read_manifests(BEFORE)

    assert backend.spec.parsers == Parsers()
    assert (Parsers().tool_call, Parsers().reasoning) == ("auto", "auto")
    assert Parsers().unknown_tools is UnknownTools.FORWARD
    assert Parsers().reasoning_whitespace is ReasoningWhitespace.KEEP


def test_every_field_is_read() -> None:
    """Under its name in a manifest."""
    said = (
        "{toolCall: qwen3_coder, reasoning: none, unknownTools: Drop, reasoningWhitespace: Strip}"
    )
    (backend,) = read_manifests(f"{BEFORE}  parsers: {said}\n")

    assert backend.spec.parsers == Parsers(
        tool_call="qwen3_coder",
        reasoning="none",
        unknown_tools=UnknownTools.DROP,
        reasoning_whitespace=ReasoningWhitespace.STRIP,
    )


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ("{toolCall: ''}", "spec.parsers.toolCall"),
        ("{toolCall: 'a b'}", "spec.parsers.toolCall"),
        ('{reasoning: "qwen3\\n"}', "spec.parsers.reasoning"),
        ("{unknownTools: forward}", "spec.parsers.unknownTools"),
        ("{reasoningWhitespace: true}", "spec.parsers.reasoningWhitespace"),
        ("{toolcall: qwen}", "spec.parsers.toolcall"),
    ],
)
def test_a_mistake_is_named_by_its_path(said: str, path: str) -> None:
    """Names are words, choices are spelled as documented, unknown fields are mistakes."""
    with pytest.raises(ManifestError, match=path):
        read_manifests(f"{BEFORE}  parsers: {said}\n")
