"""A tumour under chemotherapy and radiotherapy, both of which harm the patient too."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ifonly import ActionSpace, Axis
from ifonly.data.episode import FloatArray
from paper.worlds.base import DrawnWorld, Quantity, Variant, autoregressive, logistic, shaken

DAYS = 7
LARGEST = 30.0
"""Diameter in cm of the volume that a tumour cannot outgrow."""
GROWTH = 0.004
"""Per day: how fast a tumour closes in on the largest volume, in logarithms."""
DRUG_EFFECT = 0.016
"""Log volume per day and mg/m3."""
ALPHA, ALPHA_OVER_BETA, FRACTION = 0.02, 10.0, 2.0
"""The linear-quadratic effect of radiation, per Gy, and the dose of a day."""
HALF_LIFE = 3.0
"""Days."""
RESTING, RECOVERY = -2.2, 0.7
"""Toxicity without treatment (log-odds), and the share of the distance from it that is left after a week."""
UNIT_DOSE = 5.0
"""mg/m3."""


class Tumour(DrawnWorld):
    """Patients with a tumour of the lung; every week somebody decides on chemotherapy and radiotherapy.

    Volume V grows towards K by Gompertz' law and is reduced by a drug of concentration C and by radiation of dose d,

        dV/dt = [rho log(K / V) - beta_c C - (alpha d + beta d^2)] V,

    the form of Geng, Paganetti and Grassberger (Scientific Reports 7, 2017) that studies of treatment effects over time
    simulate (Lim, Alaa and van der Schaar, NeurIPS 2018), with its alpha / beta = 10, its fractions of 2 Gy and its K,
    a tumour of 30 cm. In x = log(K / V) this is linear, and every term keeps x above zero. The drug fades
    exponentially. Sensitivities differ between patients. Made up: that growth is faster and that effects are weaker
    than fitted there, a drug that lasts for days and is cleared more slowly under toxicity, and all of toxicity, whose
    log-odds rise with treatment, more so during an infection, and fall back with time. Volume is recorded as the
    diameter of a ball.
    """

    name: ClassVar[str] = "tumour"
    title: ClassVar[str] = "Tumour: chemotherapy and radiotherapy against growth and toxicity"
    steps: ClassVar[int] = 10
    step: ClassVar[tuple[float, str]] = (1.0, "week")
    quantities: ClassVar[tuple[Quantity, ...]] = (
        Quantity("drug sensitivity", "static", "", (0.1, 10.0)),
        Quantity("radiosensitivity", "static", "", (0.1, 10.0)),
        Quantity("infection", "contextual", "", (0.1, 10.0)),
        Quantity("diameter", "dynamic", "cm", (0.0, LARGEST), hard=True),
        Quantity("concentration", "dynamic", "mg/m3", (0.0, 50.0), hard=True),
        Quantity("toxicity", "dynamic", "share", (0.0, 1.0), hard=True),
    )
    actions: ClassVar[ActionSpace] = ActionSpace.product(
        Axis("chemotherapy", "mg/m3", (0.0, 0.5 * UNIT_DOSE, UNIT_DOSE)), Axis("radiotherapy", "Gy", (0.0, 10.0))
    )
    penalties: ClassVar[dict[str, float]] = {"diameter": 1.0, "toxicity": 4.0}
    variants: ClassVar[tuple[Variant, ...]] = (
        Variant("column", ("concentration",), "drug that is left in the blood is not recorded, and doses go by it"),
        Variant(
            "constant", ("drug sensitivity", "radiosensitivity"), "what doctors know of a tumour's kind is missing"
        ),
        Variant("drift", ("infection",), "infections are not recorded, and treatment waits for them"),
    )
    noises: ClassVar[int] = 3

    def draw_subjects(self, count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Patients at diagnosis, some of whom were treated before."""
        static = np.exp(0.35 * rng.standard_normal((count, 2)).clip(-2.5, 2.5))
        infection = np.exp(autoregressive(rng, (count, self.steps), memory=0.7, deviation=0.4).clip(-1.5, 1.5))
        initial = np.stack(
            [
                4.5 * np.exp(0.4 * rng.standard_normal(count).clip(-2.5, 2.5)),
                rng.gamma(2.0, 0.25, size=count),
                logistic(RESTING + 0.5 * rng.standard_normal(count)),
            ],
            axis=1,
        )
        return static, infection[:, :, None], initial

    def advance(
        self, states: FloatArray, static: FloatArray, context: FloatArray, doses: FloatArray, noise: FloatArray
    ) -> FloatArray:
        """A week: a dose of the drug on its first day, radiation on five."""
        diameter, concentration, toxicity = states.T
        chemotherapy, radiotherapy = doses.T
        infection = context[:, 0]
        fading = np.log(2) / HALF_LIFE * (1 - 0.5 * toxicity) * np.exp(0.1 * noise[:, 1])
        start = concentration + chemotherapy
        end = start * np.exp(-fading * DAYS)
        exposure = (start - end) / fading  # the integral of the concentration
        radiation = ALPHA * radiotherapy * (1 + FRACTION / ALPHA_OVER_BETA)
        killed = static[:, 0] * DRUG_EFFECT * exposure + static[:, 1] * radiation
        distance = 3 * np.log(LARGEST / diameter) * np.exp(-GROWTH * DAYS) + killed
        load = infection * (0.035 * exposure + 0.06 * radiotherapy) + 0.3 * np.log(infection)
        tired = RESTING + RECOVERY * (np.log(toxicity / (1 - toxicity)) - RESTING) + load
        return np.stack(
            [
                # Under treatment courses differ more.
                LARGEST * np.exp(-distance * np.exp((0.02 + 0.03 * killed) * noise[:, 0]) / 3),
                end,
                shaken(logistic(tired), 0.25 * noise[:, 2]),
            ],
            axis=1,
        )

    def preferences(self, states: FloatArray, static: FloatArray, context: FloatArray) -> FloatArray:
        """Large tumours are treated, sensitive ones with what they are sensitive to; toxicity and infections wait."""
        diameter, concentration, toxicity = states.T
        size = np.log(diameter / 4)
        strain = 4 * (toxicity - 0.2) + 1.2 * np.log(context[:, 0])
        drug = -0.2 + 1.5 * size + 1.2 * np.log(static[:, 0]) - 0.8 * (concentration - 0.8) - strain
        radiation = -0.6 + 1.2 * size + 1.2 * np.log(static[:, 1]) - 0.8 * strain
        chemotherapy, radiotherapy = np.array(self.actions.vectors).T
        parts, treated = chemotherapy / UNIT_DOSE, radiotherapy > 0
        # Half a dose is nobody's favourite; both at once are feared.
        return np.asarray(np.outer(drug, parts) + np.outer(radiation, treated) - 0.7 * parts * treated)
