"""From the Secrets and ConfigMaps that a backend names to what routers are told of them; pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from msgspec.structs import replace

from sglr_operator.objects import ConfigMap, Secret
from sglr_operator.status import RefProblem
from sglr_proto.backend import SGLangBackend
from sglr_proto.references import Kind, references_of
from sglr_proto.resolved import CallerKey, Resolved
from sglr_proto.spec_refs import CallerKeysRef
from sglr_proto.spec_tokenizer import ChatTemplate

T = TypeVar("T")

LABEL: Final = "sglr.dev/for-routers=true"
"""What an object must carry to be read. Who may write a backend must not thereby be able to read
any Secret of the namespace: whoever owns the Secret decides."""

_LONGEST_TEMPLATE: Final = 65_536
"""Characters, as for a template that stands in the spec itself."""
_TLS_CERTIFICATE, _TLS_KEY = "tls.crt", "tls.key"
"""The keys of a Secret of type kubernetes.io/tls."""


class Objects(Protocol):
    """What the operator's caches hold of Secrets and ConfigMaps."""

    def secret(self, namespace: str, name: str) -> Secret | None:
        """Return a labelled Secret."""
        ...

    def config_map(self, namespace: str, name: str) -> ConfigMap | None:
        """Return a labelled ConfigMap."""
        ...


@dataclass(frozen=True, slots=True)
class Permits:
    """What this operator may do."""

    reads: bool
    """Read what is labelled at all."""
    sends_secrets: bool
    """Tell routers secrets: the push stream is encrypted, and they proved who they are."""


@dataclass(frozen=True, slots=True)
class Material:
    """A backend with everything that it names."""

    backend: SGLangBackend
    """As routers are told: a template of a ConfigMap stands in it."""
    resolved: Resolved | None = None


class _UnresolvedError(Exception):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.problem = RefProblem(reason, message)


def resolve(backend: SGLangBackend, objects: Objects, permits: Permits) -> Material | RefProblem:
    """Return *backend* with what it names, or the first thing that is in the way."""
    named = next(references_of(backend.spec), None)
    if named is None:
        return Material(backend)
    if not permits.reads:
        return RefProblem(
            "RefNotPermitted",
            f"{named.path} names {named.kind} {named.name!r}, but this operator reads none: set"
            " watch.references=true in the chart, or start it with --references and grant"
            " deploy/rbac/references.yaml.",
        )
    reader = _Reader(backend, objects)
    try:
        told, resolved = reader.backend(), reader.resolved()
    except _UnresolvedError as error:
        return error.problem
    if resolved.has_secrets and not permits.sends_secrets:
        return RefProblem(
            "RefNotPermitted",
            "The spec names Secrets, which routers are told over an encrypted stream that they"
            " prove themselves on: set push.tls.mode of the chart to another than disabled, or"
            " --push-certificate, --push-key and --push-auth.",
        )
    return Material(told, resolved)


class _Reader:
    """Reads what one backend names."""

    def __init__(self, backend: SGLangBackend, objects: Objects) -> None:
        self._backend = backend
        self._namespace = backend.metadata.namespace
        self._objects = objects

    def backend(self) -> SGLangBackend:
        """Return the backend with its template in it."""
        spec = self._backend.spec
        template = spec.tokenizer.chat_template
        if template is None or template.config_map_key_ref is None:
            return self._backend
        ref = template.config_map_key_ref
        text = self._value("ConfigMap", ref.name, ref.key)
        if not text or len(text) > _LONGEST_TEMPLATE:
            raise _UnresolvedError(
                "InvalidReference",
                f"ConfigMap {ref.name!r} has {len(text)} characters in {ref.key!r}; a chat"
                f" template has 1 to {_LONGEST_TEMPLATE}.",
            )
        tokenizer = replace(spec.tokenizer, chat_template=ChatTemplate(inline=text))
        return replace(self._backend, spec=replace(spec, tokenizer=tokenizer))

    def resolved(self) -> Resolved:
        """Return every other value that is named."""
        spec = self._backend.spec
        ca, key, tls = spec.tls.ca_ref, spec.worker_auth.api_key_secret_ref, None
        if spec.tls.certificate_secret_ref is not None:
            tls = spec.tls.certificate_secret_ref.name
        callers = {each for ref in spec.auth.key_secret_refs for each in self._callers(ref)}
        return Resolved(
            worker_key=self._value("Secret", key.name, key.key).strip() if key is not None else "",
            ca=self._value(_kind(ca.kind.value), ca.name, ca.key) if ca is not None else "",
            certificate=self._value("Secret", tls, _TLS_CERTIFICATE) if tls is not None else "",
            key=self._value("Secret", tls, _TLS_KEY) if tls is not None else "",
            callers=tuple(sorted(callers, key=lambda each: (each.name, each.sha256))),
        )

    def _callers(self, ref: CallerKeysRef) -> Iterator[CallerKey]:
        secret = self._found("Secret", ref.name, self._objects.secret(self._namespace, ref.name))
        for name in [ref.key] if ref.key is not None else sorted(secret.data or {}):
            text = self._value("Secret", ref.name, name).strip()
            if not text:
                raise _UnresolvedError(
                    "InvalidReference", f"Secret {ref.name!r} has an empty key in {name!r}."
                )
            digest = hashlib.sha256(text.encode()).hexdigest()
            yield CallerKey(name=f"{ref.name}/{name}", sha256=digest)

    def _value(self, kind: Kind, name: str, key: str) -> str:
        data: dict[str, bytes] | dict[str, str]
        if kind == "Secret":
            secret = self._found(kind, name, self._objects.secret(self._namespace, name))
            data = secret.data or {}
        else:
            found = self._found(kind, name, self._objects.config_map(self._namespace, name))
            data = found.data or {}
        if key not in data:
            raise _UnresolvedError(
                f"{kind}KeyNotFound",
                f"{kind} {name!r} has no key {key!r}, only {sorted(data)!r}.",
            )
        value = data[key]
        try:
            return value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError as error:
            raise _UnresolvedError(
                "InvalidReference", f"{kind} {name!r} has bytes in {key!r} that are no text."
            ) from error

    def _found(self, kind: Kind, name: str, thing: T | None) -> T:
        if thing is None:
            raise _UnresolvedError(
                f"{kind}NotFound",
                f"{kind} {name!r} does not exist in namespace {self._namespace!r}, or lacks the"
                f" label {LABEL}.",
            )
        return thing


def _kind(word: str) -> Kind:
    return "Secret" if word == "Secret" else "ConfigMap"
