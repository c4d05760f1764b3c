"""A generated panel: store → product → week."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr.datasets.drawing import check_share, check_whole, generator, numbered, with_gaps

if TYPE_CHECKING:
    import pyarrow as pa

# name, usual price, usual type
PRODUCTS = (
    ("beer", 5.9, "bargain"),
    ("bread", 2.4, "staple"),
    ("coffee", 6.5, "bargain"),
    ("crisps", 2.2, "bargain"),
    ("eggs", 3.1, "staple"),
    ("ice cream", 4.2, "summer"),
    ("lemonade", 1.8, "summer"),
    ("milk", 1.3, "staple"),
    ("shampoo", 3.6, "bargain"),
    ("sun cream", 7.9, "summer"),
    ("tea", 2.9, "staple"),
    ("yoghurt", 1.1, "staple"),
)
TYPES = ("bargain", "staple", "summer")
EFFECT_NAMES = ("elasticity", "leaflet", "display", "summer")
# of each type: change of log units per log price, with a leaflet, with a display, and at the height of summer
EFFECTS = np.array([[-2.8, 0.30, 0.55, 0.0], [-0.7, 0.03, 0.06, 0.0], [-1.4, 0.10, 0.20, 0.7]])
# standard deviations of single products around their type
DEVIATIONS = np.array([0.25, 0.05, 0.05, 0.06])
# a product is of its usual type with this probability
USUAL = 0.8
PROMOTIONS = np.array(["none", "leaflet", "display"])
FIRST_MONDAY = np.datetime64("2024-01-01")
N_WEEKS = 104
WEEK = np.timedelta64(7, "D")
YEAR = 365.25
# days from New Year to the height of summer
MIDSUMMER = 200.0


def make_sales(
    n_stores: int = 30, n_products: int = 10, mean_weeks: int = 30, missing: float = 0.03, random_state: Any = 0
) -> tuple[pa.Table, pa.Table]:
    """Draw weekly sales: store → product → week, with texts, a date and gaps, as such tables have them.

    A product of a store has one of three types, which are not in the table. *Bargains* sell when they are cheap or
    promoted, *staples* always, *summer* products when it is warm. Products of one type are alike, not equal:

        log units = level + elasticity·log(price / usual price) + promotion + summer·cos(season) + noise.

    Elasticity, effect of a leaflet, of a display, and of summer are −2.8, 0.30, 0.55, 0 (bargain), −0.7, 0.03, 0.06, 0
    (staple), −1.4, 0.10, 0.20, 0.7 (summer), with standard deviations of 0.25, 0.05, 0.05, 0.06 around them. Levels
    have a standard deviation of 0.5. The noise is about 0.2 and differs between products. In four of five stores a
    product has its usual type, in the others any. Prices are cut by 5 to 30 % in a quarter of the weeks, more often
    with a promotion.

    Parameters
    ----------
    n_stores : number of stores, the agents
    n_products : number of products of each store, the entities; 1 to 12
    mean_weeks : mean number of weeks of a product, 1 to 104; new products have few
    missing : share of the prices and of the promotions that are missing
    random_state : seed

    Returns
    -------
    table : pyarrow.Table
        A row for each week: store, product, date, price, promotion, units, cost (of one unit).
    truth : pyarrow.Table
        A row for each product of a store, sorted: store, product, type, level (log units in a usual week), elasticity,
        leaflet, display, summer.

    Examples
    --------
    >>> from fedhlcr.datasets import make_sales
    >>> table, truth = make_sales(n_stores=4, n_products=5, random_state=1)
    >>> table.column_names
    ['store', 'product', 'date', 'price', 'promotion', 'units', 'cost']
    >>> truth.num_rows
    20
    """
    import pyarrow as pa

    check_whole("n_stores", n_stores)
    check_whole("n_products", n_products, most=len(PRODUCTS))
    check_whole("mean_weeks", mean_weeks, most=N_WEEKS)
    check_share("missing", missing)
    rng = generator(random_state)
    truth, noise = _draw_products(rng, n_stores, PRODUCTS[:n_products])
    full_price = np.tile([price for _, price, _ in PRODUCTS[:n_products]], n_stores)
    full_price = full_price * np.exp(0.06 * rng.standard_normal(len(noise)))

    entity, week = _weeks(rng, len(noise), mean_weeks)
    promotion = rng.choice(3, len(week), p=[0.8, 0.12, 0.08])
    is_cut = rng.random(len(week)) < np.where(promotion > 0, 0.6, 0.17)
    log_cut = np.where(is_cut, np.log1p(-rng.uniform(0.05, 0.3, len(week))), 0.02 * rng.standard_normal(len(week)))
    date = FIRST_MONDAY + WEEK * week
    features = np.column_stack([np.ones(len(week)), log_cut, promotion == 1, promotion == 2, _season(date)])
    own = np.column_stack([truth[name].to_numpy() for name in ("level", *EFFECT_NAMES)])
    mean = (own[entity] * features).sum(axis=1)
    units = rng.poisson(np.exp(mean + noise[entity] * rng.standard_normal(len(week))))
    price = np.round(full_price[entity] * np.exp(log_cut), 2)
    cost = np.round(full_price * rng.uniform(0.45, 0.6, len(noise)), 2)
    table = pa.table(
        {
            "store": truth["store"].to_numpy()[entity],
            "product": truth["product"].to_numpy()[entity],
            "date": pa.array(date.astype("datetime64[D]")),
            "price": with_gaps(price, missing, rng),
            "promotion": with_gaps(PROMOTIONS[promotion], missing, rng),
            "units": units,
            "cost": cost[entity],
        }
    )
    return table, truth


def _draw_products(
    rng: np.random.Generator, n_stores: int, products: tuple[tuple[str, float, str], ...]
) -> tuple[pa.Table, FloatArray]:
    """Types and effects of the products of all stores, and the noise of each."""
    import pyarrow as pa

    store = np.repeat(numbered("S", n_stores), len(products))
    product = np.tile(np.array([name for name, _, _ in products]), n_stores)
    usual = np.tile([TYPES.index(kind) for _, _, kind in products], n_stores)
    kind = np.where(rng.random(len(usual)) < USUAL, usual, rng.integers(0, len(TYPES), len(usual)))
    level = rng.normal(4.0, 0.5, len(kind))
    effects = EFFECTS[kind] + DEVIATIONS * rng.standard_normal((len(kind), 4)) * (EFFECTS[kind] != 0.0)
    noise = 0.2 * np.exp(0.25 * rng.standard_normal(len(kind)))
    own = {name: effects[:, column] for column, name in enumerate(EFFECT_NAMES)}
    truth = pa.table({"store": store, "product": product, "type": np.array(TYPES)[kind], "level": level, **own})
    return truth, noise


def _weeks(rng: np.random.Generator, n_entities: int, mean_weeks: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Position of the entity, and number of the week, of each row: the last weeks of each product, some left out."""
    kept = 0.8
    run = np.clip(np.round(rng.gamma(2.0, mean_weeks / (2.0 * kept), n_entities)), 4, N_WEEKS).astype(np.int64)
    rows = [N_WEEKS - length + np.flatnonzero(rng.random(length) < kept) for length in run]
    rows = [weeks if len(weeks) else np.array([N_WEEKS - 1]) for weeks in rows]
    return np.repeat(np.arange(n_entities), [len(weeks) for weeks in rows]), np.concatenate(rows)


def _season(date: NDArray[np.datetime64]) -> FloatArray:
    """1 at the height of summer, −1 in the depth of winter."""
    day = (date - date.astype("datetime64[Y]")) / np.timedelta64(1, "D")
    return np.asarray(np.cos(2.0 * np.pi * (day - MIDSUMMER) / YEAR), dtype=np.float64)
