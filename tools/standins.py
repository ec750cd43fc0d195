"""Provide the base images: pull them, or build stand-ins if no container registry can be reached.

The stand-ins have the tags that Dockerfile and docker-compose.yml name, so both files are built and run unchanged.
They consist of Debian's packages: good for tests on this machine, not for publishing.

    docker.io, debootstrap -> a minimal root file system -> `docker import` under the tag

This requires a running Docker daemon and, for stand-ins, debootstrap and root. For HTTPS, the machine's bundle of certificate
authorities and the configured package index of pip are copied into the image. An image that is present is not changed.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CA_BUNDLE = "etc/ssl/certs/ca-certificates.crt"
"""Where Debian keeps all trusted authorities in one file, relative to the root of the file system."""
SUITE = "bookworm"


@dataclass(frozen=True)
class StandIn:
    """A stand-in for an image. `tag`: of the replaced image. `packages`: of Debian. `links`: pairs of path and target."""

    tag: str
    named_in: str
    packages: tuple[str, ...]
    links: tuple[tuple[str, str], ...] = ()


STAND_INS = (
    StandIn(
        "python:3.11-slim-bookworm",
        "Dockerfile",
        ("python3", "python3-pip", "python3-venv", "ca-certificates"),
        (("usr/local/bin/python", "/usr/bin/python3"),),
    ),
    StandIn(
        "quay.io/coreos/etcd:v3.5.21",
        "docker-compose.yml",
        ("etcd-server", "etcd-client", "ca-certificates"),
        (("usr/local/bin/etcd", "/usr/bin/etcd"), ("usr/local/bin/etcdctl", "/usr/bin/etcdctl")),
    ),
)


def run_command(*command: str) -> None:
    print("+", " ".join(command), flush=True)
    subprocess.run(command, check=True, timeout=1200)


def is_image_present(tag: str) -> bool:
    return subprocess.run(["docker", "image", "inspect", tag], capture_output=True, timeout=30, check=False).returncode == 0


def pull_image(tag: str) -> bool:
    """Pull an image. Return False if no registry answers. An image that a registry does not have is an error: a stand-in would
    only hide it."""
    print("+ docker pull", tag, flush=True)
    pull = subprocess.run(["docker", "pull", "--quiet", tag], capture_output=True, text=True, timeout=900, check=False)
    if pull.returncode and ("manifest" in pull.stderr or "denied" in pull.stderr):
        sys.exit(pull.stderr.strip())
    if pull.returncode:
        print(pull.stderr.strip())
    return pull.returncode == 0


def find_ca_bundle() -> Path | None:
    """Return the bundle that the programs of this machine trust."""
    candidates = (os.environ.get("SSL_CERT_FILE"), os.environ.get("PIP_CERT"), f"/{CA_BUNDLE}")
    return next((path for text in candidates if text and (path := Path(text)).is_file()), None)


def find_index_url() -> str | None:
    """Return the package index that pip is configured with, or None for the default one."""
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return asked.stdout.strip() or None


def make_stand_in(stand_in: StandIn, mirror: str, cache: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="standin-") as directory:
        root = Path(directory) / "root"
        run_command(
            "debootstrap", "--variant=minbase", f"--include={','.join(stand_in.packages)}", f"--cache-dir={cache}",
            SUITE, str(root), mirror,
        )  # fmt: skip
        for where, to in stand_in.links:
            (root / where).unlink(missing_ok=True)
            (root / where).symlink_to(to)
        for marker in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
            marker.unlink()
        settings = {}
        if bundle := find_ca_bundle():
            shutil.copyfile(bundle, root / CA_BUNDLE)
            settings = {"SSL_CERT_FILE": f"/{CA_BUNDLE}", "PIP_CERT": f"/{CA_BUNDLE}"}
        if url := find_index_url():
            settings["PIP_INDEX_URL"] = url
        import_image(root, stand_in.tag, settings)


def import_image(root: Path, tag: str, settings: dict[str, str]) -> None:
    """Turn a file system into an image of one layer."""
    changes = [argument for name, value in settings.items() for argument in ("--change", f"ENV {name}={value}")]
    apt = ("./var/cache/apt/archives/*.deb", "./var/lib/apt/lists/*")
    pack = ["tar", "--create", "--numeric-owner", *(f"--exclude={path}" for path in apt), "--directory", str(root), "."]
    print("+ tar | docker import", tag, flush=True)
    with subprocess.Popen(pack, stdout=subprocess.PIPE) as tar:
        subprocess.run(["docker", "import", *changes, "-", tag], stdin=tar.stdout, check=True, timeout=600)
    if tar.returncode:
        raise subprocess.CalledProcessError(tar.returncode, pack)


def find_missing_tool() -> str | None:
    """Return an error that names the missing tool and how to install it, or None."""
    if shutil.which("debootstrap") is None:
        return "debootstrap is not installed\nhint: apt-get install debootstrap"
    return "debootstrap needs root\nhint: run this with sudo" if os.geteuid() else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mirror", default="http://deb.debian.org/debian", help="Debian mirror (default: %(default)s)")
    arguments = parser.parse_args()
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        sys.exit("Docker does not answer\nhint: apt-get install docker.io docker-compose, and start dockerd")
    with tempfile.TemporaryDirectory(prefix="standin-cache-") as cache:
        for stand_in in STAND_INS:
            if stand_in.tag not in (ROOT / stand_in.named_in).read_text():
                sys.exit(f"{stand_in.named_in} does not name {stand_in.tag} any more\nhint: change STAND_INS in {__file__}")
            if is_image_present(stand_in.tag) or pull_image(stand_in.tag):
                continue
            if missing := find_missing_tool():
                sys.exit(missing)
            make_stand_in(stand_in, arguments.mirror, Path(cache))


if __name__ == "__main__":
    main()
