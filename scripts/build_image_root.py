"""The root filesystem of the image: Debian's Python, the locked wheels, both commands.

Debian packages are only unpacked: nothing of them runs, and there is no shell, no package tool
and no setuid program in the result.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final

from build_image_cache import used
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
SUITE: Final = "bookworm"
PYTHON: Final = "3.11"
SITE: Final = Path(f"usr/local/lib/python{PYTHON}/dist-packages")
EXTRAS: Final = ("operator", "dataplane", "tracing")
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


def build_root(root: Path, cache: Path | None = None) -> None:
    """Fill the empty folder *root*.

    Args:
        root: An empty folder.
        cache: Where all but the project itself is kept for the next build; None keeps nothing.
    """
    with tempfile.TemporaryDirectory(prefix="sglr-image-") as name:
        work = Path(name)
        kept = cache / f"image-{_key()}" if cache is not None else None
        if kept is not None and (kept / "base.tar").exists():
            _run("tar", "--extract", "--same-permissions", "-f", kept / "base.tar", "-C", root)
            backend = kept / "backend"
            used(kept)
        else:
            backend = work / "backend"
            _build_base(root, work, backend)
            if kept is not None:
                _keep(root, backend, kept)
        _install_project(root, work, backend)


def _build_base(root: Path, work: Path, backend: Path) -> None:
    """Fill *root* with all but the project, and *backend* with what builds the project."""
    for package in _fetch(work):
        _run("dpkg-deb", "--extract", package, root)
    _trim(root)
    _settle(root)
    _install_locked(root / SITE)
    _set_aside(root / SITE, backend)
    _write_commands(root / "usr/local/bin")
    _compile(root, f"/usr/lib/python{PYTHON}", f"/{SITE}")


def _key() -> str:
    """Return a digest of what the base is made from, but for new versions of Debian's packages."""
    digest = hashlib.sha256()
    for path in (Path(__file__), ROOT / "requirements.lock", ROOT / "pyproject.toml"):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _keep(root: Path, backend: Path, kept: Path) -> None:
    """Keep the base at *kept*, which appears at once and whole."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as name:
        whole = Path(name, "whole")
        whole.mkdir()
        _run("tar", "--create", "-f", whole / "base.tar", "-C", root, ".")
        shutil.copytree(backend, whole / "backend")
        shutil.rmtree(kept, ignore_errors=True)
        whole.rename(kept)


def _run(*command: str | Path, environment: Mapping[str, str] | None = None) -> None:
    subprocess.run(command, check=True, env=environment)


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


def _install_locked(site: Path) -> None:
    """Install the locked wheels into *site*."""
    _pip(
        *("install", "--target", site, "--no-compile", "--no-deps"),
        *("--only-binary=:all:", "--python-version", PYTHON),
        *("--require-hashes", "-r", ROOT / "requirements.lock"),
    )
    # Scripts of dependencies, with the building machine's interpreter in their first line.
    shutil.rmtree(site / "bin")


def _install_project(root: Path, work: Path, backend: Path) -> None:
    """Install the project into *root*, built by *backend*."""
    site = root / SITE
    # The backend is from the lock: nothing else is fetched.
    paths = os.pathsep.join(map(str, (backend, site)))
    _pip(
        *("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", work, ROOT),
        environment=os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    (wheel,) = work.glob("*.whl")
    _pip("install", "--target", site, "--no-compile", "--no-deps", wheel)
    shutil.rmtree(site / "bin")
    own = (path.relative_to(root) for path in site.glob("sglr_*") if path.is_dir())
    _compile(root, *(f"/{path}" for path in sorted(own)))


def _pip(*arguments: str | Path, environment: Mapping[str, str] | None = None) -> None:
    quiet = ("--disable-pip-version-check", "--quiet")
    _run(sys.executable, "-m", "pip", *quiet, *arguments, environment=environment)


def _set_aside(site: Path, backend: Path) -> None:
    """Move distributions that neither command requires: the lock also holds the build tools."""
    needed = _closure(site)
    for each in distributions(path=[str(site)]):
        if canonicalize_name(each.name) in needed:
            continue
        for file in each.files or ():
            path = Path(str(file.locate()))
            if path.exists():
                aside = backend / path.relative_to(site)
                aside.parent.mkdir(parents=True, exist_ok=True)
                path.rename(aside)
    for folder in sorted((p for p in site.rglob("*") if p.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()


def _closure(site: Path) -> set[str]:
    """Return the canonical names of all that the project requires to run."""
    found: dict[str, Distribution] = {
        canonicalize_name(each.name): each for each in distributions(path=[str(site)])
    }
    needed: set[str] = set()
    waiting = _roots()
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


def _roots() -> list[tuple[str, tuple[str, ...]]]:
    """Return what pyproject.toml requires for EXTRAS: names, with their own extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: list[tuple[str, tuple[str, ...]]] = []
    texts: list[str] = list(project["dependencies"])
    for extra in EXTRAS:
        texts += project["optional-dependencies"][extra]
    for text in texts:
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if name == canonicalize_name(project["name"]):
            for extra in requirement.extras:
                texts += project["optional-dependencies"][extra]
        else:
            found.append((name, tuple(requirement.extras)))
    return found


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


def _compile(root: Path, *folders: str) -> None:
    """Compile the modules in *folders* by the image's own interpreter.

    A read-only root keeps no later ones. ``unchecked-hash``, because the archive's file times are all zero.
    """
    enter = ["chroot"] if os.geteuid() == 0 else ["unshare", "-r", "-R"]
    subprocess.run(
        [*enter, str(root), "/usr/bin/python3", "-I", "-m", "compileall", "-q",
         "--invalidation-mode", "unchecked-hash", *folders],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
