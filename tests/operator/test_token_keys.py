"""Tokens checked against the keys that an API server publishes, by an operator of namespaces."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from sglr_operator.errors import UnreachableError
from sglr_operator.kube import Kube
from sglr_operator.tokens import TokenKeys

LARGE = b"\xff" * 256
NOW = 1_800_000_000.0
GOOD: dict[str, Any] = {
    "iss": "https://kubernetes.default.svc",
    "sub": "system:serviceaccount:inference:router",
    "aud": ["sglr-operator"],
    "exp": NOW + 600,
    "nbf": NOW - 600,
}


def packed(data: bytes) -> str:
    """Return *data* in base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Signer:
    """An RSA key of openssl, and tokens that it signs."""

    def __init__(self, folder: Path, name: str, bits: int = 2048) -> None:
        """Make the key."""
        self.name = name
        self._key = folder / f"{name}.pem"
        self._openssl("genrsa", "-out", str(self._key), str(bits))

    def jwk(self) -> dict[str, str]:
        """Return the public half as an API server publishes it."""
        text = self._openssl("rsa", "-in", str(self._key), "-noout", "-modulus").decode()
        modulus = bytes.fromhex(text.strip().removeprefix("Modulus="))
        return {"kty": "RSA", "kid": self.name, "n": packed(modulus), "e": packed(b"\x01\x00\x01")}

    def token(self, *, alg: str = "RS256", kid: str = "", **changes: Any) -> str:
        """Return a signed token of the good claims with *changes*."""
        head = packed(json.dumps({"alg": alg, "kid": kid or self.name}).encode())
        signed = f"{head}.{packed(json.dumps(GOOD | changes).encode())}"
        signature = self._openssl("dgst", "-sha256", "-sign", str(self._key), data=signed.encode())
        return f"{signed}.{packed(signature)}"

    def _openssl(self, *arguments: str, data: bytes = b"") -> bytes:
        return subprocess.run(
            ["openssl", *arguments], input=data, check=True, capture_output=True, timeout=15
        ).stdout


class Published:
    """An API server that publishes keys."""

    def __init__(self, *signers: Signer) -> None:
        """Publish the keys of *signers*."""
        self.signers = list(signers)
        self.asked = 0
        self.is_away = False

    async def get(self, path: str) -> bytes:
        """Answer for the two documents."""
        if self.is_away:
            raise UnreachableError("it is away")
        if path == "/openid/v1/jwks":
            self.asked += 1
            # An elliptic key among them is nobody's business here.
            keys = [each.jwk() for each in self.signers] + [{"kty": "EC", "kid": "e"}]
            return json.dumps({"keys": keys}).encode()
        assert path == "/.well-known/openid-configuration"
        return json.dumps({"issuer": GOOD["iss"]}).encode()


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    """Return the API server's key, made once."""
    return Signer(tmp_path_factory.mktemp("keys"), "current")


def judging(
    published: Published, *accounts: str, clock: Callable[[], float] = lambda: 0.0
) -> TokenKeys:
    """Return a judge over what is *published*."""
    kube = cast("Kube", published)  # it asks for two documents and nothing else
    return TokenKeys(kube, "sglr-operator", accounts, clock=clock, now=lambda: NOW)


async def test_a_good_token_is_let_in(signer: Signer) -> None:
    """Signed by a published key, for us, now, of an account that may."""
    judge = judging(Published(signer), "inference:router")

    assert await judge(signer.token()) is None
    assert await judge(signer.token(aud="sglr-operator")) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"aud": ["https://kubernetes.default.svc"]}, "not made for audience"),
        ({"aud": "sglr-operator-2"}, "not made for audience"),
        ({"iss": "https://elsewhere"}, "issued by 'https://elsewhere'"),
        ({"exp": NOW - 6}, "not valid at this time"),
        ({"nbf": NOW + 6}, "not valid at this time"),
        ({"sub": "system:serviceaccount:inference:other"}, "may not subscribe"),
        ({"sub": "alice"}, "no service account"),
        ({"alg": "ES256"}, "only RS256"),
        ({"alg": "none"}, "only RS256"),
        ({"alg": "HS256"}, "only RS256"),
        ({"kid": "unknown"}, "no key of the API server"),
        ({"kid": "e"}, "no key of the API server"),
    ],
)
async def test_any_other_token_is_refused(
    signer: Signer, changes: dict[str, Any], words: str
) -> None:
    """The sentence says which claim is wrong."""
    judge = judging(Published(signer), "inference:router")

    assert words in (await judge(signer.token(**changes)) or "")


async def test_a_forged_or_edited_token_is_refused(signer: Signer, tmp_path: Path) -> None:
    """Another key under the same id, another body under the same signature, half a signature."""
    judge = judging(Published(signer))
    head, body, signature = signer.token().split(".")
    other = packed(json.dumps(GOOD | {"sub": "system:serviceaccount:kube-system:root"}).encode())
    forged = [
        Signer(tmp_path, "forger").token(kid="current"),
        f"{head}.{other}.{signature}",
        f"{head}.{body}.{signature[:-4]}",
        f"{head}.{body}.{packed(b'')}",
        f"{head}.{body}.{packed(bytes(256))}",
        f"{head}.{body}.{packed(LARGE)}",
    ]

    for token in forged:
        assert "no key of the API server" in (await judge(token) or ""), token


async def test_a_short_key_signs_nothing(tmp_path: Path) -> None:
    """Keys below 2,048 bits can be broken."""
    weak = Signer(tmp_path, "weak", 1024)

    assert "no key of the API server" in (await judging(Published(weak))(weak.token()) or "")


@pytest.mark.parametrize("token", ["", "a", "a.b", "a.b.c", "é.é.é", "e30.e30.", "bnVsbA.e30.e30"])
async def test_what_is_no_token_is_refused(token: str) -> None:
    """Anything a stranger may send is answered with a sentence."""
    assert await judging(Published())(token) is not None


async def test_keys_are_read_again_when_one_is_unknown_but_not_for_everybody(
    signer: Signer, tmp_path: Path
) -> None:
    """A rotated key is found; strangers with made-up ids cause no load."""
    now = [0.0]
    published = Published(signer)
    judge = judging(published, clock=lambda: now[0])
    assert await judge(signer.token()) is None
    newer = Signer(tmp_path, "newer")
    published.signers.append(newer)
    for _ in range(5):
        assert await judge(newer.token()) is not None
    assert published.asked == 1
    now[0] = 10.0

    assert await judge(newer.token()) is None
    assert published.asked == 2


async def test_an_apiserver_that_does_not_tell_its_keys_lets_nobody_in(signer: Signer) -> None:
    """No keys, no entry; the next router asks again."""
    published = Published(signer)
    published.is_away = True
    judge = judging(published)
    for _ in range(2):
        assert "dial again" in (await judge(signer.token()) or "")
    published.is_away = False

    assert await judge(signer.token()) is None
