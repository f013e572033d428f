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


@pytest.mark.parametrize(
    ("created", "time"),
    [
        (0.0, "1970-01-01T00:00:00.000+00:00"),
        (1767225599.9996, "2025-12-31T23:59:59.999+00:00"),
        (1767225600.25, "2026-01-01T00:00:00.250+00:00"),
        (1767225600.75, "2026-01-01T00:00:00.750+00:00"),
    ],
)
def test_a_line_has_its_records_time(created: float, time: str) -> None:
    """In UTC, to the millisecond, whatever the line before had."""
    formatter = log.JsonFormatter()
    record = logging.makeLogRecord({"created": created, "msecs": created % 1 * 1000})
    for other in (created - 1, created + 1):
        formatter.format(logging.makeLogRecord({"created": other, "msecs": 0.0}))

    assert json.loads(formatter.format(record))["time"] == time


def test_what_others_made_of_a_record_is_no_fact() -> None:
    """The message and the time that another handler's formatter leaves in it; a filter's word is."""
    record = logging.makeLogRecord({"msg": "hi"})
    record.request_id = "a"
    logging.Formatter("%(asctime)s %(message)s").format(record)
    record.tenant = "b"

    line = json.loads(log.JsonFormatter().format(record))
    assert {name: line[name] for name in line if name not in ("time", "level", "logger")} == {
        "message": "hi", "request_id": "a", "tenant": "b",
    }  # fmt: skip


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
