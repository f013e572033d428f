"""Certificates of throw-away authorities, for loopback."""

from __future__ import annotations

import subprocess
from pathlib import Path


def openssl(*arguments: str) -> None:
    """Run openssl."""
    subprocess.run(
        ["openssl", *arguments], check=True, capture_output=True, timeout=15
    )  # of the test machine


def authority(folder: Path, name: str) -> Path:
    """Make a certificate authority and return its certificate."""
    certificate = folder / f"{name}.crt"
    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-days", "1", "-subj", f"/CN={name}"),
        *("-keyout", str(folder / f"{name}.key"), "-out", str(certificate)),
    )
    return certificate


def issue(folder: Path, name: str, by: str) -> tuple[Path, Path]:
    """Let authority *by* certify *name* for loopback; return certificate and key."""
    request, extension = folder / f"{name}.csr", folder / f"{name}.ext"
    extension.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    openssl(
        *("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", f"/CN={name}", "-keyout", str(key), "-out", str(request)),
    )
    openssl(
        *("x509", "-req", "-in", str(request), "-days", "1", "-extfile", str(extension)),
        *("-CA", str(folder / f"{by}.crt"), "-CAkey", str(folder / f"{by}.key")),
        *("-CAcreateserial", "-out", str(certificate)),
    )
    return certificate, key
