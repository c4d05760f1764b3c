"""A likelihood may sum blocks and scalars of its own: they arrive at the server like the Gram matrices."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr import FedHLCRRegressor, HLCRRegressor
from fedhlcr._support.checks import not_negative
from fedhlcr.datasets import make_hlcr
from fedhlcr.exceptions import ArgumentError
from fedhlcr.federation.checks import ExpectedReply, ReplyLimits, find_faults
from fedhlcr.federation.messages import Contributions
from fedhlcr.federation.sums import AgentSums
from fedhlcr.model.arguments import Summands
from fedhlcr.model.gaussian import Gaussian
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.likelihood import register
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.schema import GRAMS, LABEL_SCALARS, Block, SummedScalar, SumSchema, at_least_zero


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
        return (SummedScalar("events", at_least_zero),)

    def summands(self, grams, current, labels):
        return Summands({GRAMS: grams, "doubled": 2.0 * grams}, {"events": grams[:, 0]})

    def draw(self, sums, regressions, current, spec, rng):
        self.sums_seen.append(sums)
        return super().draw(sums, regressions, current, spec, rng)


class OwnSums(HLCRRegressor):
    own_likelihood = "own-sums"


class FedOwnSums(FedHLCRRegressor):
    own_likelihood = "own-sums"


@pytest.mark.parametrize(
    "model",
    [
        OwnSums(2, n_sweeps=20, random_state=0),
        FedOwnSums(2, rounds=20, random_state=0),
        FedOwnSums(2, rounds=20, participation=0.5, random_state=0),
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


@pytest.mark.parametrize("name", ["scalars", "row_start", GRAMS])
def test_names_that_are_taken_are_refused(name):
    with pytest.raises(ArgumentError, match=name):
        SumSchema((Block(GRAMS, 3, is_gram=True), Block(name, 1)), ())


def test_impossible_values_of_an_own_block_are_refused():
    schema = SumSchema((Block(GRAMS, 6, is_gram=True), Block("counts", 1, possible=not_negative)), LABEL_SCALARS)
    law = Gaussian(GramLayout(1)).start(ModelSpec(), 1)
    expected = ExpectedReply(GramLayout(1), schema, 1, np.zeros(3), has_tables=True, law=law)
    gram = np.array([[3.0, 0.0, 1.0, 0.0, 0.0, 1.0]])
    one = np.ones(1, dtype=np.int32)
    for value, refused in ((2.0, False), (-2.0, True)):
        scalars = np.zeros((1, len(LABEL_SCALARS)))
        blocks = {GRAMS: gram, "counts": np.array([[value]])}
        sums = AgentSums(schema, np.array([0, 1]), np.zeros(1, dtype=np.int32), one, one, blocks, scalars)
        contributions = Contributions(1, 1, 1, ["a"], np.zeros(1, dtype=np.int64), sums, np.empty((1, 0)))
        assert find_faults(contributions, expected, ReplyLimits()) == ["impossible `counts`" if refused else None]
