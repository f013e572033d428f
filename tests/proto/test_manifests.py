"""Files of SGLangBackend documents: their order, their twins, and where a mistake is."""

from __future__ import annotations

import pytest
import yaml

from sglr_proto.backend import ManifestError, read_manifests
from support.manifests import EXAMPLE, a_document, changed


def test_documents_are_read_in_order_and_empty_ones_skipped() -> None:
    """Leading, doubled and trailing dividers make no backend."""
    documents = [yaml.safe_dump(a_document(name, model=name)) for name in ("b", "a", "c")]
    text = "---\n---\n" + "---\n# only a comment\n---\n".join(documents) + "---\n"

    assert [backend.key for backend in read_manifests(text)] == [
        "inference/b",
        "inference/a",
        "inference/c",
    ]
    assert read_manifests("") == ()
    assert read_manifests("# nothing\n---\nnull\n") == ()


def test_an_error_names_document_object_and_path() -> None:
    """Document and line, object, path: enough to find it without counting."""
    second = EXAMPLE.replace("name: qwen", "name: llama").replace("port: 30000", "prot: 30000")

    with pytest.raises(ManifestError) as caught:
        read_manifests(f"{EXAMPLE}---\n{second}")

    assert str(caught.value) == (
        "Document 2 (line 10), SGLangBackend 'default/llama': "
        "spec.workers.static.endpoints[0].prot is unknown; did you mean port? "
        "The fields here are host, port, zone, weight, priority."
    )
    assert caught.value.document == "document 2 (line 10)"
    assert caught.value.owner == "SGLangBackend 'default/llama'"


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        (
            a_document("qwen", model="other"),
            (
                "SGLangBackend 'inference/qwen': metadata.name is 'qwen'; an earlier document is "
                "SGLangBackend 'inference/qwen'."
            ),
        ),
        (
            changed("metadata.namespace", "team", a_document("twin")),
            (
                "SGLangBackend 'team/twin': spec.model.name is 'qwen'; "
                "SGLangBackend 'inference/qwen' of another namespace answers to it."
            ),
        ),
        (
            changed(
                "metadata.namespace",
                "team",
                changed("spec.model.aliases[1]", "qwen", a_document("twin", model="other")),
            ),
            (
                "SGLangBackend 'team/twin': spec.model.aliases[1] is 'qwen'; "
                "SGLangBackend 'inference/qwen' of another namespace answers to it."
            ),
        ),
        (
            changed(
                "metadata.namespace",
                "team",
                changed(
                    "spec.model.adapters", [{"name": "qwen"}], a_document("twin", model="other")
                ),
            ),
            (
                "SGLangBackend 'team/twin': spec.model.adapters[0].name is 'qwen'; "
                "SGLangBackend 'inference/qwen' of another namespace answers to it."
            ),
        ),
        (
            changed("metadata.namespace", "elsewhere", a_document("twin", model="qwen-small")),
            (
                "SGLangBackend 'elsewhere/twin': spec.model.name is 'qwen-small'; "
                "SGLangBackend 'inference/qwen' of another namespace answers to it."
            ),
        ),
    ],
)
def test_two_backends_never_have_one_name_or_answer_to_another_namespaces_model(
    second: dict[str, object], problem: str
) -> None:
    """The later document is refused, and told who was first."""
    text = yaml.safe_dump_all([a_document(), second])

    with pytest.raises(ManifestError) as caught:
        read_manifests(text)

    assert str(caught.value).startswith("Document 2 (line ")
    assert str(caught.value).endswith(f"), {problem}")


def test_one_name_in_two_namespaces_is_two_backends() -> None:
    """A namespace is part of the key."""
    second = changed("metadata.namespace", "other", a_document(model="llama"))

    backends = read_manifests(yaml.safe_dump_all([a_document(), second]))

    assert [backend.key for backend in backends] == ["inference/qwen", "other/qwen"]
