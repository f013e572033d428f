"""What holds for every test."""

import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# Machines that run tests are busy: how long an example takes says nothing about the code. The gate
# of a change draws the same examples each time; new ones are found by those who develop.
settings.register_profile(
    "sglr",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("sglr")

_LOGGERS = ("", "sglr_client", "sglr_dataplane", "sglr_operator")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Undo what a command under test sets up for its whole process."""
    before = [(name, logging.getLogger(name).level) for name in _LOGGERS]
    yield
    for name, level in before:
        logging.getLogger(name).setLevel(level)
