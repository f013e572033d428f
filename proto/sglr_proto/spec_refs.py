"""How a backend's spec names values of Secrets and ConfigMaps in its own namespace.

Only the operator reads them, and tells routers what they hold. Without one the same things are
files.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from msgspec import Meta

ObjectName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        description="Name of an object in the backend's namespace, labelled "
        "sglr.dev/for-routers=true.",
    ),
]
DataKey = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=253,
        pattern=r"^[-._a-zA-Z0-9]+$",
        description="Key within the object's data.",
    ),
]


class SecretKeyRef(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One value of a Secret."""

    name: ObjectName
    key: DataKey


class ConfigMapKeyRef(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One value of a ConfigMap."""

    name: ObjectName
    key: DataKey


class CaKind(enum.StrEnum):
    """What a CA bundle is in."""

    CONFIG_MAP = "ConfigMap"
    """Certificates are no secret."""
    SECRET = "Secret"  # noqa: S105  # a kind, not a password
    """Such as one that cert-manager writes."""


class CaRef(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A CA bundle, in PEM."""

    kind: Annotated[CaKind, Meta(description="What it is in. Default: ConfigMap.")] = (
        CaKind.CONFIG_MAP
    )
    name: ObjectName
    key: Annotated[DataKey, Meta(description="Key within the object's data. Default: ca.crt.")] = (
        "ca.crt"
    )


class TlsSecretRef(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A Secret with a certificate chain in `tls.crt` and its key in `tls.key`, both PEM."""

    name: ObjectName


class CallerKeysRef(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Keys that callers may come with, one per value of a Secret."""

    name: ObjectName
    key: Annotated[
        DataKey | None, Meta(description="The one value that is a key. Default: every value is.")
    ] = None


class Auth(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which callers a backend answers."""

    key_secret_refs: Annotated[
        tuple[CallerKeysRef, ...],
        Meta(
            max_length=16,
            description="Secrets with keys; with any, requests for this backend's models need one "
            "of them, or one of the router's own keys file. Routers are told hashes, never keys. A "
            "caller is called by the value's key within the Secret. Default: none, and this "
            "backend asks for no key.",
        ),
    ] = ()
