"""Hosts and ports: what is taken, what is the same, what is dialled."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglr_proto.address import canonical_host, is_host, join


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1",
        "localhost",
        "gpu-1.lab",
        "gpu-1.lab.",
        "GPU-1",
        "my_worker",
        "1.example",
        "a" * 63,
        ".".join(["a" * 63] * 3 + ["a" * 61]),
        "::1",
        "fd00::1",
        "FD00:0:0:0:0:0:0:1",
        "::ffff:10.0.0.1",
    ],
)
def test_names_and_addresses_are_hosts(text: str) -> None:
    """DNS names in any case, IPv4 and IPv6 are hosts."""
    assert is_host(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "a..b",
        ".lab",
        "-a",
        "a-",
        "a" * 64,
        ".".join(["a" * 63] * 3 + ["a" * 62]),
        "http://gpu-1",
        "gpu-1:30000",
        "gpu-1/",
        "gpu 1",
        "gpu-1\n",
        "gpu-1\0",
        "münchen",
        "256.0.0.1",
        "10.0.0",
        "127.0.0.1:30000",
        "127.0.0.1.",
        "127.0.0.1/8",
        "[::1]",
        "::1:::",
        "fe80::1%eth0",
        "42",
    ],
)
def test_urls_ports_and_broken_addresses_are_no_hosts(text: str) -> None:
    """Whatever carries more than a host, or almost is an address, is refused."""
    assert not is_host(text)


@settings(deadline=None)  # a loaded machine is no failure
@given(st.ip_addresses())
def test_every_ip_address_is_a_host_and_its_spellings_are_one(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    """Long, short and upper-case spellings of an address have one canonical form."""
    spellings = [str(address), address.exploded, address.exploded.upper()]

    assert all(is_host(each) for each in spellings)
    assert {canonical_host(each) for each in spellings} == {str(address)}


def test_names_are_one_whatever_their_case_and_final_dot() -> None:
    """DNS knows no case, and the root's dot adds nothing."""
    assert canonical_host("GPU-1.Lab.") == canonical_host("gpu-1.lab") == "gpu-1.lab"


@pytest.mark.parametrize(
    ("host", "dialled"),
    [
        ("10.0.0.1", "10.0.0.1:30000"),
        ("gpu-1.lab", "gpu-1.lab:30000"),
        ("fd00::1", "[fd00::1]:30000"),
    ],
)
def test_ipv6_is_dialled_in_brackets(host: str, dialled: str) -> None:
    """A colon inside a host would be read as the port's."""
    assert join(host, 30000) == dialled
