"""The league: real tables of many sources, with lme4's figures beside ours."""

from experiments.league.measuring import measure, settings
from experiments.league.report import report
from experiments.study import Study

STUDIES = (Study("league", "The league: real tables, all events and few", settings, measure, report),)
