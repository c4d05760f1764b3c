"""All surveys of a run at the server: agents are asked until the units of the run can be fixed."""

from __future__ import annotations

import math

import numpy as np

from fedhlcr.exceptions import FederationError
from fedhlcr.federation.claims import Claims
from fedhlcr.federation.registry import Registry
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.federation.survey import ENOUGH_AGENTS, Survey, Units
from fedhlcr.federation.survey_sums import SumSurvey, units_of_answers

MOST_SURVEYS = 100


class SurveyRounds:
    """What agents have answered, one by one or, under secure aggregation, as sums.

    Attributes
    ----------
    by_agent : the answers of single agents
    summed : the two sums of secure aggregation
    n_done : number of surveys that were closed
    n_events : events of all agents; infinite if it is unknown because some have not answered
    """

    def __init__(self, settings: FederationSettings) -> None:
        self._settings = settings
        self.by_agent = Survey(settings.layout, settings.curves)
        self.summed = SumSurvey(settings.layout)
        self.n_done = 0
        self.n_events = math.inf

    def close(self, registry: Registry, n_asked: int, claims: Claims) -> Units | None:
        """End a survey. Returns the units of the run, or None if there must be another survey.

        Parameters
        ----------
        registry : the agents
        n_asked : number of agents that were asked in this survey
        claims : gets what single agents have claimed, once the units are known
        """
        self.n_done += 1
        return self._close_sums() if self._settings.is_secure else self._close_answers(registry, n_asked, claims)

    def _close_answers(self, registry: Registry, n_asked: int, claims: Claims) -> Units | None:
        """Fix the units of the run, unless too few agents have answered and there are others to ask."""
        survey = self.by_agent
        settings = self._settings
        if survey.n_informative == 0:
            if self.n_done < MOST_SURVEYS:
                return None
            raise FederationError(
                f"no agent has reported an event in {self.n_done} surveys; check that agents can be reached, that "
                "they have events, and that the log shows no refused replies."
            )
        everyone = np.flatnonzero(~registry.withdrawn)
        if len(survey.agents) < ENOUGH_AGENTS and n_asked and len(survey.left_to_ask(everyone)):
            return None
        if settings.fixed_point:
            units = units_of_answers(settings.layout, *survey.answers(), standardize=settings.standardize)
        else:
            trusting = math.isinf(settings.max_weight)
            units = survey.fix(standardize=settings.standardize, trusting=trusting)
        self.n_events = survey.n_events() if np.isin(everyone, survey.agents).all() else math.inf
        claims.set_survey(*survey.claims(units.standardization), units.mean_squares)
        self.by_agent = Survey(settings.layout, settings.curves)
        return units

    def _close_sums(self) -> Units | None:
        """The same for a survey that consists of two sums."""
        if self.summed.is_complete:
            self.n_events = self.summed.n_events
            return self.summed.units(standardize=self._settings.standardize)
        if self.n_done >= MOST_SURVEYS:
            raise FederationError(
                f"the survey has failed {self.n_done} times: fewer than {self._settings.min_cohort} devices "
                "(`min_cohort`) took part to the end, or their sums were refused; the log says which."
            )
        return None
