import numpy as np
import pytest

from ifonly.data import ActionSpace, Axis, Feature, Scaler, Schema
from ifonly.data.scaling import Columns


@pytest.fixture(scope="session")
def schema() -> Schema:
    return Schema(
        (
            Feature("pressure", "dynamic", unit="mmHg"),
            Feature("age", "static"),
            Feature("lactate", "dynamic", scaling="log"),
            Feature("hour", "contextual"),
            Feature("score", "dynamic"),
        ),
        ActionSpace.product(Axis("drug", "mg", (0.0, 1.0, 4.0)), Axis("fluid", "mL", (0.0, 250.0))),
        step_length=4,
        step_unit="h",
    )


@pytest.fixture(scope="session")
def scaler(schema: Schema) -> Scaler:
    """Nothing at zero, nothing at one."""
    identity = Scaler.identity(schema)
    return Scaler(
        states=Columns(np.array([70.0, 0.5, 6.0]), np.array([12.0, 0.7, 3.0]), identity.states.link),
        context=Columns(np.array([60.0, 10.0]), np.array([15.0, 5.0]), identity.context.link),
        actions=Columns(np.array([1.5, 125.0]), np.array([1.7, 125.0]), identity.actions.link),
    )
