"""All rivals and HLCR on real tables."""

from experiments.real.measuring import measure, settings
from experiments.real.report import report
from experiments.study import Study

STUDIES = (Study("real", "Real tables: HLCR and what one would otherwise use", settings, measure, report),)
