"""Every Secret and ConfigMap that a backend's spec names; pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sglr_proto.spec import Spec

Kind = Literal["Secret", "ConfigMap"]


@dataclass(frozen=True, slots=True)
class Reference:
    """One object that is named, and where."""

    path: str
    """The field of the object, from its root."""
    kind: Kind
    name: str


def references_of(spec: Spec) -> Iterator[Reference]:
    """Yield what *spec* names, in the order of its fields."""
    template = spec.tokenizer.chat_template
    if template is not None and template.config_map_key_ref is not None:
        path = "spec.tokenizer.chatTemplate.configMapKeyRef"
        yield Reference(path, "ConfigMap", template.config_map_key_ref.name)
    if spec.tls.ca_ref is not None:
        kind: Kind = "Secret" if spec.tls.ca_ref.kind.value == "Secret" else "ConfigMap"
        yield Reference("spec.tls.caRef", kind, spec.tls.ca_ref.name)
    if spec.tls.certificate_secret_ref is not None:
        path = "spec.tls.certificateSecretRef"
        yield Reference(path, "Secret", spec.tls.certificate_secret_ref.name)
    if spec.worker_auth.api_key_secret_ref is not None:
        path = "spec.workerAuth.apiKeySecretRef"
        yield Reference(path, "Secret", spec.worker_auth.api_key_secret_ref.name)
    for index, each in enumerate(spec.auth.key_secret_refs):
        yield Reference(f"spec.auth.keySecretRefs[{index}]", "Secret", each.name)
