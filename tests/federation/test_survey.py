"""The survey: whom it asks again, and the units it fixes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedhlcr.datasets import make_hlcr
from fedhlcr.federation.messages import NEVER, SURVEY_ROUND, Broadcast
from fedhlcr.federation.shard import AgentShard
from fedhlcr.federation.survey import MOST_ASKED, Survey
from fedhlcr.model.gaussian import Gaussian
from fedhlcr.model.gram import GramLayout
from fedhlcr.storage.reader import checkpoint_reader
from tests.federations import hierarchy_of

TABLE, _ = make_hlcr(6, 3, 5, 2, 2, 0.5, random_state=1)
LAYOUT = GramLayout(2)
EVERYONE = np.arange(6)


def replies(table=TABLE, agents=EVERYONE):
    """What agents answer to the survey."""
    shard = AgentShard.from_hierarchy(hierarchy_of(table))
    broadcast = Broadcast(0, 0, SURVEY_ROUND, NEVER, 0, Gaussian(LAYOUT))
    return shard.answer(broadcast, agents, np.full(len(agents), NEVER))


def survey_of(table=TABLE, agents=EVERYONE):
    survey = Survey(LAYOUT)
    survey.ask(agents)
    survey.absorb(agents, replies(table, agents))
    return survey


def test_units_are_means_and_spreads_of_all_events():
    units = survey_of().fix(standardize=True)
    np.testing.assert_allclose(units.standardization.shift, [*TABLE.X.mean(axis=0), TABLE.y.mean()], rtol=1e-12)
    np.testing.assert_allclose(units.standardization.scale, [*TABLE.X.std(axis=0), TABLE.y.std()], rtol=1e-12)
    np.testing.assert_allclose(units.mean_squares, 1.0, rtol=1e-12)
    assert units.target_spread == pytest.approx(1.0)


def test_a_trusting_survey_takes_the_means_of_all_events():
    """Also where one agent has most of the events, and another a column far from the others'."""
    y = np.where(TABLE.agent == 1, 1e4 * TABLE.y, TABLE.y)
    copies = np.where(TABLE.agent == 2, 500, 1)
    table = replace(TABLE, y=y)[np.repeat(np.arange(len(TABLE)), copies)]
    units = survey_of(table).fix(standardize=True, trusting=True).standardization
    np.testing.assert_allclose(units.shift, [*table.X.mean(axis=0), table.y.mean()], rtol=1e-9)
    np.testing.assert_allclose(units.scale, [*table.X.std(axis=0), table.y.std()], rtol=1e-9)
    wary = survey_of(table).fix(standardize=True).standardization
    assert wary.scale[-1] < 0.1 * units.scale[-1]


def test_units_without_standardisation_have_scale_one():
    units = survey_of().fix(standardize=False)
    assert (units.standardization.scale == 1.0).all()
    assert units.target_spread == pytest.approx(TABLE.y.std())


def test_units_do_not_depend_on_who_answers_first():
    first, second = survey_of(), Survey(LAYOUT)
    for part in (EVERYONE[3:], EVERYONE[:3]):
        second.absorb(part, replies(agents=part))
    one, other = (survey.fix(standardize=True).to_record() for survey in (first, second))
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def test_agents_that_do_not_answer_are_asked_a_few_times():
    survey = survey_of(agents=EVERYONE[:2])
    for times in range(MOST_ASKED):
        assert survey.left_to_ask(EVERYONE).tolist() == [2, 3, 4, 5], times
        survey.ask(EVERYONE[2:])
    assert survey.left_to_ask(EVERYONE).tolist() == []


def test_everyone_is_asked_again_while_no_events_are_known():
    survey = Survey(LAYOUT)
    for _ in range(MOST_ASKED + 1):
        survey.ask(EVERYONE)
    assert survey.left_to_ask(EVERYONE).tolist() == EVERYONE.tolist()


def test_forgotten_agent_does_not_influence_the_units():
    survey = survey_of()
    survey.forget(2)
    others = TABLE[TABLE.agent != 2]
    assert survey.agents.tolist() == [0, 1, 3, 4, 5]
    np.testing.assert_allclose(survey.fix(standardize=True).standardization.shift[:2], others.X.mean(axis=0))


def test_restored_survey_fixes_the_same_units():
    survey, again = survey_of(agents=EVERYONE[:4]), Survey(LAYOUT)
    survey.ask(EVERYONE[4:])
    again.restore(checkpoint_reader(survey.to_record()), n_agents=6)
    again.ask(EVERYONE[4:])
    assert again.agents.tolist() == [0, 1, 2, 3]
    assert again.left_to_ask(EVERYONE).tolist() == []
    one, other = (s.fix(standardize=True).to_record() for s in (survey, again))
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)
