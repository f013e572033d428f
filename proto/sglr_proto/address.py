"""Hosts and ports as people write them and as clients dial them."""

from __future__ import annotations

import ipaddress
import re

_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_LONGEST_NAME = 253  # characters; RFC 1035 without the root's dot


def is_host(text: str) -> bool:
    """Return whether *text* is a DNS name or an IP address, and nothing more.

    Underscores are taken, because container networks resolve names that have them. No port, no
    brackets, no zone: an interface name means nothing on another machine.
    """
    if "%" not in text and _ip(text) is not None:
        return True
    labels = text.removesuffix(".").split(".")
    if len(text.removesuffix(".")) > _LONGEST_NAME or labels[-1].isdigit():
        return False  # all digits at the end: meant as an IPv4 address, but it is none
    return all(_LABEL.fullmatch(label) for label in labels)


def canonical_host(host: str) -> str:
    """Return the one spelling of *host* that equals every other spelling of it.

    ``GPU-1.lab.`` and ``gpu-1.lab`` are one host, as are ``FD00:0::1`` and ``fd00::1``.
    """
    address = _ip(host)
    return host.removesuffix(".").lower() if address is None else address.compressed


def join(host: str, port: int) -> str:
    """Return what to dial: ``10.0.0.1:30000``, ``[fd00::1]:30000``, ``gpu-1.lab:30000``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return *text* as an IP address, None when it is none."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
