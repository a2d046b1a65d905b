"""Importing this makes `paper`, which lies beside this folder in a clone, importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
