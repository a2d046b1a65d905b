"""Hypothesis tries the same examples everywhere, and takes the time it needs; fewer examples in the ordinary run."""

from effort import some
from hypothesis import settings

settings.register_profile("ifonly", deadline=None, derandomize=True, max_examples=some(100))
settings.load_profile("ifonly")

collect_ignore = ["conftest.py"]  # has no examples; as a module its name is that of the other files like it
