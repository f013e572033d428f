"""What is known of a stream besides its chunks, for both kinds of callers."""

from __future__ import annotations

from sglr_client.results import Usage
from sglr_client.rules import Account


class StreamFacts:
    """Known as far as the stream was read."""

    def __init__(self, account: Account) -> None:
        """Tell what *account* knows."""
        self._account = account

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._account!r}>"

    @property
    def usage(self) -> Usage | None:
        """Tokens by the server's counters; None: it told none so far."""
        return self._account.reader.usage if self._account.reader else None

    @property
    def skipped(self) -> int:
        """Events that were no chunks, with ``skip_invalid``."""
        return self._account.reader.skipped if self._account.reader else 0
