"""A generated growth study: clinic → child → visit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.datasets.drawing import check_share, check_whole, generator, numbered, with_gaps

if TYPE_CHECKING:
    import pyarrow as pa

# the mean course: height in cm at the age of two, growth in cm a year at that age, and half of how fast growth slows
HEIGHT_AT_TWO = 87.0
GROWTH_AT_TWO = 8.2
SLOWING = 0.22
# cm that boys are taller, and cm per cm of the mother's height
BOYS = 1.0
MOTHER = 0.3
MEAN_MOTHER = 165.0
# standard deviations between children: of height at the age of five, of growth a year; of a measurement
LEVELS = 3.2
RATES = 0.55
MEASUREMENT = 0.7
# deviations belong to this age
MIDDLE_AGE = 5.0


def make_growth(
    n_clinics: int = 20,
    children_per_clinic: int = 15,
    mean_visits: int = 6,
    missing: float = 0.1,
    random_state: Any = 0,
) -> tuple[pa.Table, pa.Table]:
    """Draw a growth study: clinic → child → visit, heights of children between two and nine years.

    All children follow one course, with gradual differences. There are *no* types of children:

        height = course(age) + boy + 0.3·(mother − 165) + level + rate·(age − 5) + noise,

    with course(age) = 87 + 8.2·(age − 2) − 0.22·(age − 2)², boys 1 cm taller, level ~ N(0, 3.2²) in cm, rate ~ N(0,
    0.55²) in cm a year, and a measurement error of 0.7 cm. Clinics differ by N(0, 0.5²) cm.

    Parameters
    ----------
    n_clinics : number of clinics, the agents
    children_per_clinic : number of children of each clinic, the entities
    mean_visits : mean number of visits of a child, 3 or more; they are about half a year to a year apart
    missing : share of the children whose mother's height is missing
    random_state : seed

    Returns
    -------
    table : pyarrow.Table
        A row for each visit: clinic, child, sex, mother (height in cm), age (years), height (cm).
    truth : pyarrow.Table
        A row for each child, sorted: clinic, child, level, rate (cm a year that the child grows more than others).

    Examples
    --------
    >>> from fedhlcr.datasets import make_growth
    >>> table, truth = make_growth(n_clinics=3, random_state=1)
    >>> table.column_names
    ['clinic', 'child', 'sex', 'mother', 'age', 'height']
    """
    import pyarrow as pa

    check_whole("n_clinics", n_clinics)
    check_whole("children_per_clinic", children_per_clinic)
    check_whole("mean_visits", mean_visits, least=3)
    check_share("missing", missing)
    rng = generator(random_state)
    n_children = n_clinics * children_per_clinic
    clinic = np.repeat(numbered("K", n_clinics), children_per_clinic)
    child = np.tile(numbered("C", children_per_clinic), n_clinics)
    of_clinic = np.repeat(0.5 * rng.standard_normal(n_clinics), children_per_clinic)
    boy = rng.random(n_children) < 0.5
    mother = np.round(rng.normal(MEAN_MOTHER, 6.0, n_children))
    level = LEVELS * rng.standard_normal(n_children) + of_clinic
    rate = RATES * rng.standard_normal(n_children)

    n_visits = 3 + rng.poisson(mean_visits - 3, n_children)
    entity = np.repeat(np.arange(n_children), n_visits)
    age = np.concatenate([_ages(rng, n) for n in n_visits])
    height = course(age) + BOYS * boy[entity] + MOTHER * (mother - MEAN_MOTHER)[entity] + level[entity]
    height += rate[entity] * (age - MIDDLE_AGE) + MEASUREMENT * rng.standard_normal(len(age))
    # a mother's height is known at all visits of her child, or at none
    mothers = with_gaps(mother, missing, rng).take(pa.array(entity))
    table = pa.table(
        {
            "clinic": clinic[entity],
            "child": child[entity],
            "sex": np.where(boy, "boy", "girl")[entity],
            "mother": mothers,
            "age": np.round(age, 2),
            "height": np.round(height, 1),
        }
    )
    return table, pa.table({"clinic": clinic, "child": child, "level": level, "rate": rate})


def course(age: FloatArray) -> FloatArray:
    """The mean height in cm at an age in years, of a girl whose mother is 165 cm tall."""
    return HEIGHT_AT_TWO + GROWTH_AT_TWO * (age - 2.0) - SLOWING * (age - 2.0) ** 2


def _ages(rng: np.random.Generator, n_visits: int) -> FloatArray:
    """Ages at the visits of one child, in order, within two and nine years."""
    steps = rng.uniform(0.4, 1.1, n_visits)
    steps *= min(1.0, 6.9 / steps.sum())
    start = rng.uniform(2.0, 9.0 - steps[1:].sum())
    return np.asarray(start + np.concatenate([[0.0], np.cumsum(steps[1:])]))
