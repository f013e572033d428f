"""What is told of every request is logged as everything else is: same lines, levels and failures."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from datetime import datetime

import pytest

from sglr_dataplane import log

logger = logging.getLogger("sglr_dataplane.access")
FACTS: dict[str, object] = {"request_id": "é", "status": 200, "failure": None, "seconds": 0.25}


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Leave logging as it was."""
    loggers = [logging.getLogger(name) for name in ("", "sglr_dataplane", "sglr_client")]
    loggers += [logging.getLogger(name) for name in ("sglr_proto", "uvicorn")]
    loggers += [logging.getLogger(name) for name in ("uvicorn.error", "uvicorn.access")]
    levels = [each.level for each in loggers]
    handlers = logging.getLogger().handlers[:]
    logging.getLogger().handlers.clear()
    yield
    logging.getLogger().handlers[:] = handlers
    for each, level in zip(loggers, levels, strict=True):
        each.setLevel(level)


def lines_of(stream: io.StringIO) -> list[dict[str, object]]:
    """Return the objects that were written, without the time, which is a time."""
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    for line in found:
        assert datetime.fromisoformat(line.pop("time")).tzinfo is not None
    return found


@pytest.mark.parametrize("process", [None, 3])
def test_a_told_fact_is_the_line_that_info_writes(
    monkeypatch: pytest.MonkeyPatch, process: int | None
) -> None:
    """The same fields in the same order, those of other processes' routers included."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    log.set_up("INFO", process)
    logger.info("request", extra=FACTS)
    log.tell(logger, "request", FACTS)
    by_info, told = lines_of(stream)

    assert list(told.items()) == list(by_info.items())
    logger.info("%d %s", 1, "two")
    assert lines_of(stream)[-1]["message"] == "1 two"
    assert told["request_id"] == "é"
    assert told.get("process") == process


@pytest.mark.parametrize("place", ["logger", "handler"])
def test_filters_hold_what_is_told_back(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """As they hold back what is logged, wherever somebody put them."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    log.set_up("INFO")
    filtered = logger if place == "logger" else logging.getLogger().handlers[0]
    filtered.addFilter(hide := lambda record: record.status != 200)
    try:
        for status in (200, 500):
            log.tell(logger, "request", FACTS | {"status": status})
            logger.info("request", extra=FACTS | {"status": status})
    finally:
        filtered.removeFilter(hide)

    assert [line["status"] for line in lines_of(stream)] == [500, 500]


def test_what_is_below_the_level_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """At WARNING no request is logged."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    log.set_up("WARNING")
    log.tell(logger, "request", FACTS)

    assert stream.getvalue() == ""


def test_a_stream_that_is_broken_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk behind stderr must not fail requests."""
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    log.set_up("INFO")
    monkeypatch.setattr(sys, "stderr", told := io.StringIO())
    log.tell(logger, "request", FACTS)

    assert "I/O operation on closed file" in told.getvalue()
