"""Build the wheel, install it into an empty environment away from the sources, and let it work there.

    python tools/wheel.py FOLDER [--extra NAME] [--offline]

FOLDER must not exist. --extra installs an extra with the wheel, such as all. With --offline nothing is fetched: the
wheel is built with the setuptools of this Python, and what it depends on is borrowed from this Python's packages.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORK = (
    "simulate --patients 20 --horizon 5 --out cohort",
    "fit --recipe residual --episodes cohort --hidden 8 --epochs 2 --out model",
    "solve --episodes cohort --model model --only patient-00001 -k 1 --out result.json --allow-failed-model",
    "verify result.json --episodes cohort --model model",
)
"""What an installed package must be able to do."""


def build(folder: Path, *, offline: bool) -> Path:
    """The wheel, in `folder`."""
    shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)  # files of an earlier build would be packed again
    more = ["--no-build-isolation", "--no-index"] if offline else []
    call([sys.executable, "-m", "pip", "wheel", "-q", str(ROOT), "--no-deps", "-w", str(folder), *more])
    (wheel,) = folder.glob("ifonly-*.whl")
    return wheel


def differing(wheel: Path) -> list[str]:
    """Files of the package that are in the wheel or in the sources alone."""
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("ifonly/")}
    files = (path for path in (ROOT / "src" / "ifonly").rglob("*") if path.is_file() and path.suffix != ".pyc")
    return sorted(packed ^ {path.relative_to(ROOT / "src").as_posix() for path in files})


def install(wheel: Path, environment: Path, *, extra: str, offline: bool) -> Path:
    """A fresh environment with the wheel in it; its folder of programs."""
    call([sys.executable, "-m", "venv", str(environment)])
    programs = environment / ("Scripts" if os.name == "nt" else "bin")
    pip = [str(programs / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    if offline:
        call([*pip, "--no-index", "--no-deps", str(wheel)])
        (place,) = environment.glob("lib/python*/site-packages")
        # Behind the environment's own packages, so that the wheel's files win.
        known = [folder for folder in sys.path if folder.endswith("site-packages")]
        (place / "borrowed.pth").write_text("\n".join(known) + "\n", encoding="utf-8")
    else:
        call([*pip, "-c", str(ROOT / "constraints.txt"), f"{wheel}[{extra}]" if extra else str(wheel)])
    return programs


def call(command: list[str], **more: object) -> None:
    """Run a command, outside the sources' reach; its words are shown where it fails."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(command, env=clean, capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def main() -> None:
    """Build, look inside, install, work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--extra", default="")
    parser.add_argument("--offline", action="store_true")
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True)
    wheel = build(folder, offline=given.offline)
    if others := differing(wheel):
        sys.exit(f"{wheel.name} and the sources differ in {', '.join(others)}")
    programs = install(wheel, folder / "environment", extra=given.extra, offline=given.offline)
    work = folder / "work"
    work.mkdir()
    where = "import ifonly, sys; sys.exit('environment' not in ifonly.__file__ and ifonly.__file__)"
    call([str(programs / "python"), "-c", where], cwd=work)
    for command in WORK:
        call([str(programs / "ifonly"), *command.split()], cwd=work)
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB, installed, and works")


if __name__ == "__main__":
    main()
