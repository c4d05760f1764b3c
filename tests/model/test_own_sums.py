"""A likelihood may sum blocks and scalars of its own: they arrive at the server like the Gram matrices."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr import FedHLCRRegressor, HLCRRegressor
from fedhlcr.datasets import make_hlcr
from fedhlcr.model.gaussian import Gaussian
from fedhlcr.model.likelihood import Summands, register
from fedhlcr.model.schema import GRAMS, Block, SummedScalar


def not_negative(values, _n_entities):
    return values >= 0


@register
class WithOwnSums(Gaussian):
    """The Gaussian, with a block whose size depends on the layout and a scalar that counts events."""

    name = "own-sums"
    has_fixed_summands = False
    sums_seen: list = []  # noqa: RUF012

    @property
    def own_blocks(self):
        return (Block("doubled", self.layout.packed_size),)

    @property
    def own_scalars(self):
        return (SummedScalar("events", not_negative),)

    def summands(self, grams, given, labels):
        return Summands({GRAMS: grams, "doubled": 2.0 * grams}, grams[:, :1])

    def draw(self, sums, regressions, current, spec, rng):
        self.sums_seen.append(sums)
        return super().draw(sums, regressions, current, spec, rng)


@pytest.mark.parametrize(
    "model",
    [
        HLCRRegressor(2, likelihood="own-sums", n_sweeps=20, random_state=0),
        FedHLCRRegressor(2, likelihood="own-sums", rounds=20, random_state=0),
        FedHLCRRegressor(2, likelihood="own-sums", rounds=20, participation=0.5, random_state=0),
    ],
    ids=["centralised", "federated", "half of the agents"],
)
def test_own_blocks_and_scalars_are_summed(model):
    table, _ = make_hlcr(8, 3, 5, 2, 2, 0.3, random_state=1)
    WithOwnSums.sums_seen.clear()
    model.fit(table.X, table.y, agent=table.agent, entity=table.entity)
    assert len(WithOwnSums.sums_seen) >= 19
    for sums in WithOwnSums.sums_seen:
        np.testing.assert_allclose(sums.blocks["doubled"], 2.0 * sums.grams, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(sums.scalars["events"], sums.grams[:, 0].sum(), rtol=1e-12)
    assert sums.scalars["events"] == pytest.approx(len(table.y))
