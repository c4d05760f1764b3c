"""A generated study of asthma: hospital → patient → month, with a yes or no target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit

from fedhlcr.datasets.drawing import check_whole, generator, numbered

if TYPE_CHECKING:
    import pyarrow as pa

TYPES = ("allergic", "infectious")
# of each type: log odds of an attack in a usual month without the inhaler; what is added per point of pollen, per cold,
# and with the inhaler taken on all days
EFFECTS = np.array([[0.2, 1.3, 0.1, -2.4], [-1.7, 0.1, 1.3, -0.2]])
# standard deviations of single patients around their type
DEVIATIONS = np.array([0.5, 0.15, 0.15, 0.2])


def make_clinic(
    n_hospitals: int = 24, mean_patients: int = 12, mean_months: int = 18, random_state: Any = 0
) -> tuple[pa.Table, pa.Table]:
    """Draw asthma attacks: hospital → patient → month, did the patient have an attack, yes or no.

    A patient has one of two types, which are not in the table. *Allergic* patients have attacks when there is pollen,
    and the inhaler helps them. *Infectious* ones have attacks with colds, and the inhaler hardly helps. Log odds of an
    attack are

        level + pollen effect·pollen + cold effect·colds + inhaler effect·inhaler,

    0.2, 1.3, 0.1, −2.4 (allergic) and −1.7, 0.1, 1.3, −0.2 (infectious), with standard deviations of 0.5, 0.15, 0.15,
    0.2 around them. Hospitals differ in size and in how many of their patients are allergic.

    Parameters
    ----------
    n_hospitals : number of hospitals, the agents
    mean_patients : mean number of patients of a hospital, the entities; 4 or more. Sizes differ much
    mean_months : mean number of months of a patient, the events; 6 or more
    random_state : seed

    Returns
    -------
    table : pyarrow.Table
        A row for each month: hospital, patient, pollen (standardised), colds (number of them), inhaler (share of the
        days on which it was taken), attack ("yes" or "no").
    truth : pyarrow.Table
        A row for each patient, sorted: hospital, patient, type, level, pollen, colds, inhaler (the effects).

    Examples
    --------
    >>> from fedhlcr.datasets import make_clinic
    >>> table, truth = make_clinic(n_hospitals=3, random_state=1)
    >>> sorted(set(table["attack"].to_pylist()))
    ['no', 'yes']
    """
    import pyarrow as pa

    check_whole("n_hospitals", n_hospitals)
    check_whole("mean_patients", mean_patients, least=4)
    check_whole("mean_months", mean_months, least=6)
    rng = generator(random_state)
    n_patients = 3 + rng.poisson(rng.gamma(1.2, (mean_patients - 3) / 1.2, n_hospitals))
    hospital = np.repeat(numbered("H", n_hospitals), n_patients)
    patient = np.concatenate([numbered("P", max(n_patients))[:n] for n in n_patients])
    is_allergic = rng.random(len(patient)) < np.repeat(rng.beta(2.0, 2.0, n_hospitals), n_patients)
    kind = np.where(is_allergic, 0, 1)
    effects = EFFECTS[kind] + DEVIATIONS * rng.standard_normal((len(kind), 4))
    habit = rng.beta(3.0, 2.0, len(kind))

    n_months = 6 + rng.poisson(mean_months - 6, len(kind))
    entity = np.repeat(np.arange(len(kind)), n_months)
    pollen = np.round(rng.standard_normal(len(entity)), 2)
    colds = rng.poisson(0.7, len(entity))
    inhaler = np.round(np.clip(habit[entity] + 0.25 * rng.standard_normal(len(entity)), 0.0, 1.0), 2)
    features = np.column_stack([np.ones(len(entity)), pollen, colds, inhaler])
    attack = rng.random(len(entity)) < expit((effects[entity] * features).sum(axis=1))
    table = pa.table(
        {
            "hospital": hospital[entity],
            "patient": patient[entity],
            "pollen": pollen,
            "colds": colds,
            "inhaler": inhaler,
            "attack": np.where(attack, "yes", "no"),
        }
    )
    own = {name: effects[:, column] for column, name in enumerate(("level", "pollen", "colds", "inhaler"))}
    return table, pa.table({"hospital": hospital, "patient": patient, "type": np.array(TYPES)[kind], **own})
