"""What the package is built on: the tested versions with hashes of their files, and a bill of materials.

`hashes` writes constraints-hashed.txt: the versions of constraints.txt, each with the SHA-256 of the file that pip
takes for it on this platform. What the index has no file of, such as a build of torch from a local file, is
named in a comment. `sbom` prints what is installed as a CycloneDX document (JSON), from metadata alone.
"""

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CONSTRAINTS, HASHED = ROOT / "constraints.txt", ROOT / "constraints-hashed.txt"
LOCAL = {"torch"}
"""Installed from a file of one's own: a build for the processor alone, which no index names so."""


def normal(name: str) -> str:
    """The name of a distribution as indexes spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(file: Path = CONSTRAINTS) -> dict[str, str]:
    """Versions by the names of distributions."""
    lines = [line.split("#")[0].strip() for line in file.read_text().splitlines()]
    return {normal(name): version for name, _, version in (line.partition("==") for line in lines if line)}


def hashes_of(wanted: dict[str, str]) -> dict[str, str]:
    """The SHA-256 of the file that pip takes for each; nothing is installed."""
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps", "--ignore-installed"]
        subprocess.run(
            [*command, "--report", str(report), *(f"{name}=={version}" for name, version in wanted.items())], check=True
        )
        found = json.loads(report.read_text())["install"]
    infos = {normal(one["metadata"]["name"]): one["download_info"].get("archive_info", {}) for one in found}
    return {name: info["hashes"]["sha256"] for name, info in infos.items() if "sha256" in info.get("hashes", {})}


def write_hashes() -> None:
    """Write the hashed constraints anew."""
    versions = pinned()
    found = hashes_of({name: version for name, version in versions.items() if name not in LOCAL})
    head = [
        "# The versions of constraints.txt with the SHA-256 of their files. Made by `make hashes`; do not edit.",
        f"# For {platform.system()} {platform.machine()}, Python {'.'.join(platform.python_version_tuple()[:2])}:",
        "# pip install --require-hashes --no-deps -r constraints-hashed.txt",
    ]
    without = [f"# without a hash: {name}=={versions[name]}" for name in versions if name not in found]
    lines = [f"{name}=={versions[name]} --hash=sha256:{found[name]}" for name in sorted(found)]
    HASHED.write_text("\n".join([*head, *without, *lines]) + "\n")


def needed(name: str, extras: frozenset[str] = frozenset()) -> Iterator[tuple[str, frozenset[str]]]:
    """The distributions that one asks for here, with the extras of each."""
    from packaging.requirements import Requirement

    for text in distribution(name).requires or ():
        one = Requirement(text)
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in (extras or {""})):
            yield normal(one.name), frozenset(one.extras)


def closure(name: str, extras: frozenset[str]) -> dict[str, set[str]]:
    """What is installed for a distribution, and what each asks for."""
    installed = {normal(one.metadata["Name"]) for one in distributions()}
    found: dict[str, set[str]] = {}
    waiting = [(name, extras)]
    while waiting:
        one, more = waiting.pop()
        known = found.setdefault(one, set())
        for other, wanted in needed(one, more):
            if other in installed and other not in known:
                known.add(other)
                waiting.append((other, wanted))
    return found


def component(found: Distribution) -> dict[str, Any]:
    """One entry of the bill: what, which version, under which licence."""
    name, version = normal(found.metadata["Name"]), found.version
    licence = found.metadata.get("License-Expression") or found.metadata.get("License") or ""
    entry: dict[str, Any] = {
        "type": "library",
        "bom-ref": f"pkg:pypi/{name}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
    }
    # Some put the whole text there; its first line says which one it is.
    return entry | ({"licenses": [{"license": {"name": licence.splitlines()[0][:200]}}]} if licence.strip() else {})


def bill(extras: frozenset[str] = frozenset({"clinical", "dask", "web"})) -> dict[str, Any]:
    """The bill of materials of ifonly with these extras, as installed here; the same installation gives the same."""
    found = closure("ifonly", extras)
    parts = {name: component(distribution(name)) for name in sorted(found)}
    own = parts.pop("ifonly") | {"type": "application"}
    reference = {name: part["bom-ref"] for name, part in parts.items()} | {"ifonly": own["bom-ref"]}
    content = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": own},
        "components": list(parts.values()),
        "dependencies": [
            {"ref": reference[name], "dependsOn": sorted(reference[other] for other in found[name])}
            for name in sorted(found)
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return {"serialNumber": f"urn:uuid:{serial}", **content}


def main() -> int:
    """Do what the first word says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("hashes", "sbom"))
    if parser.parse_args().what == "hashes":
        write_hashes()
    else:
        print(json.dumps(bill(), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
