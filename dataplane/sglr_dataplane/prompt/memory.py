"""Memory that a load has used and freed goes back to the system."""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Return freed memory to the system; takes milliseconds.

    glibc keeps what is below anything still in use. Loading a vocabulary of 150,000 tokens leaves
    33 MB of such holes, which nothing that serves requests ever fills. Other C libraries have no
    such call, and need none.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
