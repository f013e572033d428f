"""Structured logging: one JSON object per line on stderr, never prompts, answers or keys."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Final, TextIO

import orjson

_OURS: Final = ("sglr_dataplane", "sglr_client", "sglr_proto")
_BLANK: Final = vars(
    logging.makeLogRecord(
        {"levelno": logging.INFO, "levelname": "INFO"}
        | dict.fromkeys(("thread", "threadName", "process", "processName"))
    )
)
_STANDARD: Final = frozenset(_BLANK) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Renders a record as one JSON object: time, level, logger, message, and its ``extra`` facts."""

    def __init__(self, process: int | None = None) -> None:
        """Add *process* to every line, unless it is None."""
        super().__init__()
        self._process = process
        self._second = (0, "")
        """The last second that a record was of, since 1970 and as a time."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without a line break."""
        line: dict[str, object] = {
            "time": f"{self._time_of(int(record.created))}.{int(record.msecs):03}+00:00",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage() if record.args else str(record.msg),
        }
        if self._process is not None:
            line["process"] = self._process
        # A record's own attributes come first; what was added to it follows.
        for name, fact in islice(vars(record).items(), len(_BLANK), None):
            if name not in _STANDARD:
                line[name] = fact  # noqa: PERF403  # a comprehension is a call
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()

    def _time_of(self, second: int) -> str:
        """Return the time at *second*, without its zone; most lines are of the one before's."""
        last, told = self._second
        if last != second:
            told = datetime.fromtimestamp(second, UTC).isoformat().removesuffix("+00:00")
            self._second = second, told
        return told


class _Fact(logging.LogRecord):
    """What a module has to tell, at INFO; without the line of code, which no log line has.

    Finding that line, its thread and its process is most of what a record costs.
    """

    def __init__(self, name: str, message: str, facts: Mapping[str, object]) -> None:
        created = time.time()
        self.__dict__ = {
            **_BLANK,
            "name": name,
            "msg": message,
            "created": created,
            "msecs": created % 1 * 1000,
            **facts,
        }


class _Lines(logging.StreamHandler[TextIO]):
    """Writes each record as a line; the stream, like stderr, passes on what ends in a line break."""

    def __init__(self, stream: TextIO, formatter: JsonFormatter) -> None:
        """Write to *stream* what *formatter* makes of records."""
        super().__init__(stream)
        self.setFormatter(formatter)
        self._line = formatter.format

    def handle(self, record: logging.LogRecord) -> bool:
        """Write *record*, as logging's own does: a call where it takes four."""
        if self.filters or self.lock is None:
            return super().handle(record)
        with self.lock:
            self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """Write *record*; a failure to is told as logging tells it."""
        try:
            self.stream.write(self._line(record) + self.terminator)
        except Exception:  # noqa: BLE001  # a log must never end what it tells of
            self.handleError(record)


def tell(logger: logging.Logger, message: str, facts: Mapping[str, object]) -> None:
    """Log *message* at INFO with *facts*, as ``logger.info`` does with ``extra``, at a third of the cost.

    For what is logged of every request. No fact may have the name of a record's attribute.
    """
    if logger.isEnabledFor(logging.INFO):
        call = logger.handle if logger.filters else logger.callHandlers
        call(_Fact(logger.name, message, facts))


def set_up(level: str, process: int | None = None) -> None:
    """Send every record at *level* or above to stderr as JSON; replaces earlier set-ups.

    What libraries say passes from WARNING on: at DEBUG some write down whole headers and bodies.
    With *process*, every line says which of a router's processes wrote it.
    """
    stream = _Lines(sys.stderr, JsonFormatter(process))
    logging.basicConfig(level=logging.WARNING, handlers=[stream], force=True)
    logging.getLogger().setLevel(max(logging.getLogger().level, _number(level)))
    for name in _OURS:
        logging.getLogger(name).setLevel(level)
    # uvicorn sets a level of its own, and its lines repeat ours.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level]
