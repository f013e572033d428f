"""Structured logging: one JSON object per line on stderr, never a token or a Secret's content."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_QUIET: Final = {
    "kopf": logging.WARNING,
    # Signals are ours: kopf runs in a thread, where there are none, and says so at each start.
    "kopf._core.reactor.running": logging.ERROR,
    "aiohttp": logging.WARNING,
    "asyncio": logging.WARNING,
}
"""Loggers whose lines below a level are about events that our own lines tell better."""


class JsonLines(logging.Formatter):
    """One line of JSON per record: when, how bad, who, what, and the facts of its ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        when = datetime.fromtimestamp(record.created, UTC)
        facts: dict[str, Any] = {
            name: value for name, value in vars(record).items() if name not in _STANDARD
        }
        if record.exc_info:
            facts["traceback"] = self.formatException(record.exc_info)
        head = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        return msgspec.json.encode(head | facts, enc_hook=str).decode()


def set_up(level: str) -> None:
    """Send records at *level* and above to stderr; replaces what was set up before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(least)
