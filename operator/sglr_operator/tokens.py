"""Who may subscribe: a router's service-account token.

In a cluster the API server reviews it. An operator that is limited to namespaces may not ask for
that; it checks the signature against the keys that the API server publishes for everybody.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from sglr_operator.errors import KubeError
from sglr_operator.kube import Kube
from sglr_operator.resources import REVIEWS

_ACCOUNT: Final = "system:serviceaccount:"


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Status(msgspec.Struct, frozen=True):
    authenticated: bool = False
    audiences: tuple[str, ...] | None = None
    user: _User = _User()


class _Review(msgspec.Struct, frozen=True):
    status: _Status = _Status()


@dataclass(frozen=True, slots=True)
class TokenReviewer:
    """Judges tokens; the push server's :class:`~sglr_operator.push.Authenticate`."""

    kube: Kube
    audience: str
    """What a token must be made for: one for the API server itself is refused."""
    accounts: tuple[str, ...] = ()
    """``namespace:name`` of the accounts that are let in; () lets in any."""

    async def __call__(self, token: str) -> str | None:
        """Return why *token* is refused; None when it is good."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [self.audience]},
        }
        try:
            answer = await self.kube.create(REVIEWS.path(), body)
        except KubeError:
            return "The API server did not judge the token; dial again."
        return self.judge(msgspec.json.decode(answer, type=_Review).status)

    def judge(self, status: _Status) -> str | None:
        """Return why a reviewed token is refused; None when it is good."""
        if not status.authenticated:
            return "The API server does not know this token."
        # A server that knows no audiences answers without them, whatever the token was made for.
        if self.audience not in (status.audiences or ()):
            return f"The token is not made for audience {self.audience!r}."
        return _refused(status.user.username, self.accounts)


_KEYS: Final = "/openid/v1/jwks"
_DISCOVERY: Final = "/.well-known/openid-configuration"
_LOOK_AGAIN: Final = 10.0
"""Seconds between two readings of the keys: tokens of unknown keys must not become a load."""
_LEEWAY: Final = 5.0
"""Seconds by which two machines' clocks may differ."""
_LEAST_BITS: Final = 2048
_DIGEST_INFO: Final = bytes.fromhex("3031300d060960864801650304020105000420")
"""RFC 8017, 9.2: what comes before a SHA-256 in a signature."""


class _Head(msgspec.Struct, frozen=True):
    alg: str = ""
    kid: str = ""


class _Claims(msgspec.Struct, frozen=True):
    iss: str = ""
    sub: str = ""
    aud: str | tuple[str, ...] = ()
    exp: float = 0.0
    nbf: float = 0.0


class _Jwk(msgspec.Struct, frozen=True):
    kty: str = ""
    kid: str = ""
    n: str = ""
    e: str = ""


class _Jwks(msgspec.Struct, frozen=True):
    keys: tuple[_Jwk, ...] = ()


class _Issuer(msgspec.Struct, frozen=True):
    issuer: str = ""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An RSA key: modulus and exponent."""

    n: int
    e: int

    def signed(self, message: bytes, signature: bytes) -> bool:
        """Return whether *signature* is this key's of *message*, by RSASSA-PKCS1-v1_5 and SHA-256.

        Everything here is public, so nothing can be learned from how long it takes.
        """
        length = (self.n.bit_length() + 7) // 8
        tail = b"\x00" + _DIGEST_INFO + hashlib.sha256(message).digest()
        if self.n.bit_length() < _LEAST_BITS or len(signature) != length:
            return False
        number = int.from_bytes(signature, "big")
        if number >= self.n:
            return False
        # The whole block is compared: parsing it is how such checks have been fooled.
        expected = b"\x00\x01" + b"\xff" * (length - len(tail) - 2) + tail
        return hmac.compare_digest(pow(number, self.e, self.n).to_bytes(length, "big"), expected)


class TokenKeys:
    """Judges tokens by the API server's published keys; the push server's ``Authenticate``.

    Unlike a review it cannot know that a token's pod is gone: a token is good until it expires.
    State: the keys and the issuer as read last, and when.
    """

    def __init__(
        self,
        kube: Kube,
        audience: str,
        accounts: tuple[str, ...],
        *,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        """Let in *accounts* (``namespace:name``; () lets in any) with tokens for *audience*.

        Args:
            kube: Where the keys are read.
            audience: What a token must be made for.
            accounts: Who is let in.
            clock: Monotonic seconds, for the pace of reading.
            now: Seconds since 1970, for what tokens say of time.
        """
        self._kube = kube
        self._audience = audience
        self._accounts = accounts
        self._clock = clock
        self._now = now
        self._keys: dict[str, PublicKey] = {}
        self._issuer = ""
        self._read_at: float | None = None

    def __repr__(self) -> str:
        return f"<TokenKeys {sorted(self._keys)} of {self._issuer!r}>"

    async def __call__(self, token: str) -> str | None:
        """Return why *token* is refused; None when it is good."""
        try:
            signed, _, tail = token.rpartition(".")
            head_text, _, claims_text = signed.partition(".")
            head = msgspec.json.decode(_unpacked(head_text), type=_Head)
            claims = msgspec.json.decode(_unpacked(claims_text), type=_Claims)
            signature = _unpacked(tail)
        except (ValueError, msgspec.MsgspecError):
            return "The token is no JSON Web Token."
        if head.alg != "RS256":
            return (
                f"The token is signed by {head.alg!r}; only RS256 is checked here. Use mutual TLS."
            )
        try:
            key = await self._key(head.kid)
        except (KubeError, msgspec.MsgspecError, ValueError):
            return "The API server did not tell its keys; dial again."
        if key is None or not key.signed(signed.encode(), signature):
            return "The token is signed by no key of the API server."
        return self.judge(claims)

    def judge(self, claims: _Claims) -> str | None:
        """Return why a token with these *claims* is refused, its signature being good."""
        audiences = (claims.aud,) if isinstance(claims.aud, str) else claims.aud
        now = self._now()
        if claims.iss != self._issuer:
            return f"The token was issued by {claims.iss!r}, not by {self._issuer!r}."
        if not claims.nbf - _LEEWAY <= now < claims.exp + _LEEWAY:
            return "The token is not valid at this time."
        if self._audience not in audiences:
            return f"The token is not made for audience {self._audience!r}."
        if not claims.sub.startswith(_ACCOUNT):
            return f"{claims.sub!r} is no service account."
        return _refused(claims.sub, self._accounts)

    async def _key(self, kid: str) -> PublicKey | None:
        """Return a key by its id; the keys are read again when it is unknown."""
        if kid not in self._keys and (
            self._read_at is None or self._clock() - self._read_at >= _LOOK_AGAIN
        ):
            found = msgspec.json.decode(await self._kube.get(_KEYS), type=_Jwks)
            issuer = msgspec.json.decode(await self._kube.get(_DISCOVERY), type=_Issuer)
            self._issuer = issuer.issuer
            self._keys = {
                each.kid: PublicKey(_number(each.n), _number(each.e))
                for each in found.keys
                if each.kty == "RSA"
            }
            self._read_at = self._clock()
        return self._keys.get(kid)


def _refused(username: str, accounts: tuple[str, ...]) -> str | None:
    """Return why a user may not subscribe; None when it may."""
    if accounts and username.removeprefix(_ACCOUNT) not in accounts:
        return f"{username!r} may not subscribe; {', '.join(accounts)} may."
    return None


def _unpacked(text: str) -> bytes:
    """Return what base64url *text* holds; JSON Web Tokens leave its padding out.

    Raises:
        ValueError: It is none.
    """
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error


def _number(text: str) -> int:
    return int.from_bytes(_unpacked(text), "big")
