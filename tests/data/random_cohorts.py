"""Random schemas and cohorts for property tests, and what it means for two cohorts to be the same."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ifonly.data import ActionSpace, Axis, Cohort, Feature, Schema
from ifonly.data.schema import TABLE_COLUMNS

PRINTABLE = st.characters(categories=("L", "N", "P", "S", "M")) | st.just(" ")
FINITE = st.floats(allow_nan=False, allow_infinity=False)
POSITIVE = st.floats(1e-300, 1e300)
MODERATE = st.floats(-1e6, 1e6)
KINDS = st.sampled_from(["static", "contextual", "dynamic"])

names = (
    st.text(PRINTABLE, min_size=1, max_size=12)
    .map(str.strip)
    .filter(lambda name: name and name not in TABLE_COLUMNS and name.isprintable())
)
ids = st.text(PRINTABLE, min_size=1, max_size=8).filter(str.isprintable).map(str.strip).filter(bool)
ranges = st.lists(MODERATE, min_size=2, max_size=2, unique=True).map(lambda pair: (min(pair), max(pair)))

hard_ranges = st.tuples(st.floats(-100, 100), st.floats(0.1, 1e3)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@st.composite
def features(draw, kind=KINDS):
    scaling = draw(st.sampled_from(["linear", "log", "bounded", "none"]))
    return Feature(
        name=draw(names),
        kind=draw(kind),
        unit=draw(st.text(PRINTABLE, max_size=5)),
        scaling=scaling,
        plausible=draw(hard_ranges if scaling == "bounded" else st.none() | ranges),
        log_offset=draw(st.floats(0, 10)) if scaling == "log" else 0.0,
        margin=draw(st.none() | st.floats(1e-3, 0.2)) if scaling == "bounded" else None,
    )


axes = st.builds(
    Axis,
    name=names,
    unit=st.sampled_from(["", "mL/4 h", "mcg/kg/min"]),
    levels=st.lists(MODERATE, min_size=1, max_size=3, unique=True).map(lambda levels: tuple(sorted(levels))),
)


@st.composite
def vector_spaces(draw):
    labels = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    width = draw(st.integers(1, 3))
    return ActionSpace.from_vectors([draw(st.tuples(*[MODERATE] * width)) for _ in labels], labels)


action_spaces = (
    st.lists(names, min_size=1, max_size=5, unique=True).map(ActionSpace.categories)
    | st.lists(axes, min_size=1, max_size=2, unique_by=lambda axis: axis.name).map(lambda a: ActionSpace.product(*a))
    | vector_spaces()
)


@st.composite
def schemas(draw):
    listed = [*draw(st.lists(features(), max_size=4)), draw(features(kind=st.just("dynamic")))]
    unique = {feature.name: feature for feature in listed}
    step_unit = draw(st.sampled_from(["step", "h", "days"]))
    return Schema(tuple(unique.values()), draw(action_spaces), draw(st.floats(1e-3, 1e3)), step_unit)


@st.composite
def cohorts(draw, values=FINITE, positive=POSITIVE):
    schema = draw(schemas())
    episode_ids = draw(st.lists(ids, min_size=1, max_size=5, unique=True))
    lengths = [draw(st.integers(2, 5)) for _ in episode_ids]
    total = sum(lengths)

    def column(feature):
        source = positive if feature.scaling == "log" else values
        if feature.hard_range is not None:
            source = st.floats(*feature.hard_range)
        if feature.kind == "static":
            return np.repeat([draw(source) for _ in episode_ids], lengths)
        return draw(hnp.arrays(np.float64, total, elements=source))

    def matrix(listed):
        return np.column_stack([np.empty((total, 0)), *(column(feature) for feature in listed)])

    return Cohort(
        schema=schema,
        ids=tuple(episode_ids),
        offsets=np.cumsum([0, *lengths]),
        states=matrix(schema.dynamic),
        context=matrix(schema.context),
        actions=draw(hnp.arrays(np.int64, total, elements=st.integers(0, len(schema.actions) - 1))),
        subjects=tuple(draw(st.sampled_from(["s1", "s2", "s3"])) for _ in episode_ids),
    )


def assert_same(one, two):
    """Equal in every bit."""
    assert one.schema == two.schema
    assert one.schema.fingerprint == two.schema.fingerprint
    assert (one.ids, one.subjects, one.implausible) == (two.ids, two.subjects, two.implausible)
    for name in ("offsets", "states", "context", "actions"):
        left, right = getattr(one, name), getattr(two, name)
        assert (left.dtype, left.shape) == (right.dtype, right.shape), name
        assert left.tobytes() == right.tobytes(), name
