"""Who may subscribe: a router's service-account token, reviewed by the API server."""

from __future__ import annotations

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
        account = status.user.username.removeprefix(_ACCOUNT)
        if self.accounts and account not in self.accounts:
            return f"{status.user.username!r} may not subscribe; {', '.join(self.accounts)} may."
        return None
