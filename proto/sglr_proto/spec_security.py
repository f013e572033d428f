"""What a backend's spec says about how routers and workers prove themselves to each other."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from msgspec import Meta

from sglr_proto.spec_refs import CaRef, SecretKeyRef, TlsSecretRef

FilePath = Annotated[str, Meta(min_length=1, max_length=4096)]
"""A file as the router sees it, such as one of a mounted Secret; it is read again when it changes."""


class TlsMode(enum.StrEnum):
    """How workers are spoken to."""

    DISABLED = "Disabled"
    """In plain text."""
    TLS = "TLS"
    """Encrypted; the worker proves itself."""
    MUTUAL = "Mutual"
    """Encrypted; router and worker prove themselves."""


class Tls(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """TLS from the router to the workers."""

    mode: Annotated[TlsMode, Meta(description="How workers are spoken to. Default: Disabled.")] = (
        TlsMode.DISABLED
    )
    ca_file: Annotated[
        FilePath | None,
        Meta(
            description="PEM bundle that a worker's certificate must be signed by. Default: the "
            "system's."
        ),
    ] = None
    ca_ref: Annotated[
        CaRef | None,
        Meta(description="The same as a value of a ConfigMap or Secret. Needs the operator."),
    ] = None
    certificate_file: Annotated[
        FilePath | None,
        Meta(description="PEM chain that the router shows; only with Mutual. Default: none."),
    ] = None
    key_file: Annotated[
        FilePath | None,
        Meta(description="PEM key of that certificate; only with Mutual. Default: none."),
    ] = None
    certificate_secret_ref: Annotated[
        TlsSecretRef | None,
        Meta(
            description="Both as a Secret of type kubernetes.io/tls; only with Mutual. Needs the "
            "operator."
        ),
    ] = None
    server_name: Annotated[
        Annotated[str, Meta(min_length=1, max_length=253)] | None,
        Meta(
            description="Name that every worker's certificate must be for. Default: the worker's "
            "host, which for pods is an address."
        ),
    ] = None

    def __post_init__(self) -> None:
        """Refuse what nobody reads, what is named twice, and a mode that lacks something."""
        files = {
            "caFile": self.ca_file,
            "certificateFile": self.certificate_file,
            "keyFile": self.key_file,
        }
        for name, path in files.items():
            if path is not None and not path.isprintable():
                raise ValueError(f"{name} is {path!r}; expected printable characters")
            if path is not None and self.mode is TlsMode.DISABLED:
                raise ValueError(f"{name} is set with mode Disabled; expected TLS or Mutual")
        if self.ca_ref is not None and self.mode is TlsMode.DISABLED:
            raise ValueError("caRef is set with mode Disabled; expected TLS or Mutual")
        if self.ca_ref is not None and self.ca_file is not None:
            raise ValueError("caRef is set beside caFile; expected one of them")
        self._refuse_half_a_certificate(files)

    def _refuse_half_a_certificate(self, files: dict[str, str | None]) -> None:
        is_mutual = self.mode is TlsMode.MUTUAL
        if self.certificate_secret_ref is not None:
            if not is_mutual:
                raise ValueError("certificateSecretRef goes with mode Mutual only")
            for name in ("certificateFile", "keyFile"):
                if files[name] is not None:
                    raise ValueError(f"{name} is set beside certificateSecretRef; expected one way")
            return
        for name in ("certificateFile", "keyFile"):
            if (files[name] is not None) != is_mutual:
                raise ValueError(
                    f"{name} goes with mode Mutual, and Mutual needs it or certificateSecretRef"
                )


class WorkerAuth(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How the router proves itself to workers that ask for a key."""

    api_key_file: Annotated[
        FilePath | None,
        Meta(
            description="File with the key that goes with every call, probes included, as "
            "authorization: Bearer. Default: none, and no header."
        ),
    ] = None
    api_key_secret_ref: Annotated[
        SecretKeyRef | None,
        Meta(description="The same as a value of a Secret. Needs the operator."),
    ] = None

    def __post_init__(self) -> None:
        """Refuse what cannot be shown, and two keys."""
        if self.api_key_file is not None and self.api_key_secret_ref is not None:
            raise ValueError("apiKeySecretRef is set beside apiKeyFile; expected one of them")
        if self.api_key_file is not None and not self.api_key_file.isprintable():
            raise ValueError(f"apiKeyFile is {self.api_key_file!r}; expected printable characters")
