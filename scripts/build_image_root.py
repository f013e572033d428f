"""The root filesystem of the image: Debian's Python, the locked wheels, both commands.

Debian packages are only unpacked: nothing of them runs, and there is no shell, no package tool
and no setuid program in the result.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
SUITE: Final = "bookworm"
PYTHON: Final = "3.11"
SITE: Final = Path(f"usr/local/lib/python{PYTHON}/dist-packages")
PROJECT: Final = "sglang-k8s-router"
EXTRAS: Final = ("operator", "dataplane")
COMMANDS: Final = {"sglr": "sglr_dataplane.cli", "sglr-operator": "sglr_operator.cli"}
USER: Final = 65532
"""Outside the ids that distributions and people use."""

PACKAGES: Final = (
    "base-files", "ca-certificates", "media-types", "netbase", "openssl", "tzdata",
    f"python{PYTHON}-minimal", f"libpython{PYTHON}-minimal", f"libpython{PYTHON}-stdlib",
    "libbz2-1.0", "libc6", "libcrypt1", "libdb5.3", "libexpat1", "libffi8", "libgcc-s1",
    "liblzma5", "libncursesw6", "libnsl2", "libreadline8", "libsqlite3-0", "libssl3",
    "libstdc++6", "libtinfo6", "libtirpc3", "libgssapi-krb5-2", "libkrb5-3", "libk5crypto3",
    "libkrb5support0", "libcom-err2", "libkeyutils1", "libuuid1", "zlib1g",
)  # fmt: skip
"""Everything the interpreter, its standard library and the wheels load; openssl writes the
chart's certificates. Listed one by one: a resolver would add a package tool, perl and a shell."""

_UNUSED: Final = (
    "usr/share/man", "usr/share/locale", "usr/share/lintian", "usr/share/info", "usr/share/perl5",
    "usr/share/bug", "usr/share/menu", "usr/share/doc-base", "usr/share/pixmaps",
    "usr/share/applications", "usr/share/binfmts", "usr/share/common-licenses/GFDL",
    "usr/share/common-licenses/GFDL-1.2", "usr/share/common-licenses/GFDL-1.3",
    "usr/sbin", "etc/update-motd.d", "var",
    f"usr/lib/python{PYTHON}/test", f"usr/lib/python{PYTHON}/pydoc_data",
)  # fmt: skip
_PASSWD: Final = (
    f"root:x:0:0:root:/root:/sbin/nologin\nsglr:x:{USER}:{USER}:sglr:/home/sglr:/sbin/nologin\n"
)
_GROUP: Final = f"root:x:0:\nsglr:x:{USER}:\n"


def build_root(root: Path) -> None:
    """Fill the empty folder *root*."""
    with tempfile.TemporaryDirectory(prefix="sglr-image-") as name:
        work = Path(name)
        for package in _fetch(work):
            subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
        _trim(root)
        _settle(root)
        _install(root / SITE, work)
    _write_commands(root / "usr/local/bin")
    _compile(root)


def size_of(root: Path) -> int:
    """Return the bytes of all files under *root*, unpacked."""
    return sum(p.lstat().st_size for p in root.rglob("*") if p.is_file() and not p.is_symlink())


def _fetch(work: Path) -> list[Path]:
    """Return the Debian packages, downloaded with lists of their own from this machine's archive.

    apt's own state stays as it was, and what is installed here does not matter.
    """
    for folder in ("lists/partial", "archives/partial", "debs"):
        (work / folder).mkdir(parents=True)
    (work / "debian.sources").write_text(
        f"Types: deb\nURIs: {_archive()}\nSuites: {SUITE} {SUITE}-updates\nComponents: main\n"
        "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    )
    apt = [
        "apt-get", "-qq",
        "-o", f"Dir::Etc::sourcelist={work}/debian.sources", "-o", "Dir::Etc::sourceparts=-",
        "-o", f"Dir::State::Lists={work}/lists", "-o", f"Dir::Cache={work}",
        "-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none",
    ]  # fmt: skip
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "download", *PACKAGES], check=True, cwd=work / "debs")
    return sorted((work / "debs").glob("*.deb"))


def _archive() -> str:
    """Return the address of the first Debian archive that this machine's apt is set up for."""
    folder = Path("/etc/apt")
    for path in sorted(folder.glob("sources.list.d/*.sources")):
        for line in path.read_text().splitlines():
            if line.startswith("URIs:"):
                for address in line.split()[1:]:
                    if address.rstrip("/").endswith("/debian"):
                        return address
    for path in (folder / "sources.list", *sorted(folder.glob("sources.list.d/*.list"))):
        for line in path.read_text().splitlines() if path.exists() else ():
            words = [word for word in line.split() if not word.startswith(("[", "arch="))]
            if words[:1] == ["deb"] and words[1].rstrip("/").endswith("/debian"):
                return words[1]
    sys.exit("build_image: no Debian archive is configured in /etc/apt.")


def _trim(root: Path) -> None:
    """Remove what no container needs; the packages' licences stay."""
    for name in _UNUSED:
        shutil.rmtree(root / name, ignore_errors=True)
    for folder in (
        *root.glob("usr/lib/*-linux-gnu/gconv"),
        *root.glob("usr/lib/*-linux-gnu/perl*"),
    ):
        shutil.rmtree(folder)
    for path in list((root / "usr/share/doc").rglob("*")):
        if (path.is_file() or path.is_symlink()) and path.name != "copyright":
            path.unlink()


def _settle(root: Path) -> None:
    """Do by hand what the packages' install scripts would."""
    for folder in (
        "tmp",
        "home/sglr",
        "etc/ssl/certs",
        "usr/local/bin",
        "proc",
        "sys",
        "dev",
        "run",
    ):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text(_PASSWD)
    (root / "etc/group").write_text(_GROUP)
    (root / "etc/nsswitch.conf").write_text("hosts: files dns\n")
    bundle = b"".join(
        path.read_bytes() for path in sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    )
    (root / "etc/ssl/certs/ca-certificates.crt").write_bytes(bundle)
    (root / "usr/bin/python3").symlink_to(f"python{PYTHON}")
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~(stat.S_ISUID | stat.S_ISGID))


def _install(site: Path, work: Path) -> None:
    """Install the locked wheels and the project into *site*, then drop what only builds need."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    target = ["install", "--target", str(site), "--no-compile", "--no-deps"]
    subprocess.run(
        [*pip, *target, "--only-binary=:all:", "--python-version", PYTHON,
         "--require-hashes", "-r", str(ROOT / "requirements.lock")],
        check=True,
    )  # fmt: skip
    # pip needs the backend: it was just installed from the lock, so nothing else is fetched.
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(work), str(ROOT)],
        check=True,
        env=os.environ | {"PYTHONPATH": str(site)},
    )
    # Scripts of dependencies, with the building machine's interpreter in their first line.
    shutil.rmtree(site / "bin")
    subprocess.run([*pip, *target, *map(str, work.glob("*.whl"))], check=True)
    shutil.rmtree(site / "bin")
    _drop_unneeded(site)


def _drop_unneeded(site: Path) -> None:
    """Remove distributions that neither command requires: the lock also holds the build tools."""
    needed = _closure(site)
    for each in distributions(path=[str(site)]):
        if canonicalize_name(each.name) in needed:
            continue
        for file in each.files or ():
            path = Path(str(file.locate()))
            path.unlink(missing_ok=True)
    for folder in sorted((p for p in site.rglob("*") if p.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()


def _closure(site: Path) -> set[str]:
    """Return the canonical names of all that the project requires to run."""
    found: dict[str, Distribution] = {
        canonicalize_name(each.name): each for each in distributions(path=[str(site)])
    }
    needed: set[str] = set()
    waiting: list[tuple[str, tuple[str, ...]]] = [(canonicalize_name(PROJECT), EXTRAS)]
    while waiting:
        name, extras = waiting.pop()
        if name not in found:
            continue
        needed.add(name)
        for requirement in _requirements(found[name], extras):
            other = canonicalize_name(requirement.name)
            if other not in needed or requirement.extras:
                waiting.append((other, tuple(requirement.extras)))
    return needed


def _requirements(distribution: Distribution, extras: tuple[str, ...]) -> Iterator[Requirement]:
    """Yield what *distribution* with *extras* requires on this platform."""
    environments = [{"extra": extra} for extra in ("", *extras)]
    for text in distribution.requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate(environment) for environment in environments):
            yield requirement


def _write_commands(folder: Path) -> None:
    """Write both commands; their modules are imported by the image's own interpreter."""
    for name, module in COMMANDS.items():
        path = folder / name
        path.write_text(
            f"#!/usr/bin/python3 -I\nimport sys\nfrom {module} import main\nsys.exit(main())\n"
        )
        path.chmod(0o755)


def _compile(root: Path) -> None:
    """Compile all modules in the image's own interpreter: a read-only root keeps no later ones.

    ``unchecked-hash``, because the archive's file times are all zero.
    """
    enter = ["chroot", str(root)] if os.geteuid() == 0 else ["unshare", "-r", "-R", str(root)]
    subprocess.run(
        [*enter, "/usr/bin/python3", "-I", "-m", "compileall", "-q",
         "--invalidation-mode", "unchecked-hash", f"/usr/lib/python{PYTHON}", f"/{SITE}"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
