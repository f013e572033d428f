"""Structured logging: one JSON object per line on stderr, never prompts, answers or keys."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Final

import orjson

_OURS: Final = ("sglr_dataplane", "sglr_client", "sglr_proto")
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Renders a record as one JSON object: time, level, logger, message, and its ``extra`` facts."""

    def __init__(self, process: int | None = None) -> None:
        """Add *process* to every line, unless it is None."""
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without a line break."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._process is not None:
            line["process"] = self._process
        line.update((k, v) for k, v in vars(record).items() if k not in _STANDARD)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def set_up(level: str, process: int | None = None) -> None:
    """Send every record at *level* or above to stderr as JSON; replaces earlier set-ups.

    What libraries say passes from WARNING on: at DEBUG some write down whole headers and bodies.
    With *process*, every line says which of a router's processes wrote it.
    """
    stream = logging.StreamHandler(sys.stderr)
    stream.setFormatter(JsonFormatter(process))
    logging.basicConfig(level=logging.WARNING, handlers=[stream], force=True)
    logging.getLogger().setLevel(max(logging.getLogger().level, _number(level)))
    for name in _OURS:
        logging.getLogger(name).setLevel(level)
    # uvicorn sets a level of its own, and its lines repeat ours.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level]
