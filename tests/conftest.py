"""What holds for every test."""

import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# Machines that run tests are busy: how long an example takes says nothing about the code.
settings.register_profile("sglr", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sglr")

_LOGGERS = ("", "sglr_client", "sglr_dataplane", "sglr_operator")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Undo what a command under test sets up for its whole process."""
    before = [(name, logging.getLogger(name).level) for name in _LOGGERS]
    yield
    for name, level in before:
        logging.getLogger(name).setLevel(level)
