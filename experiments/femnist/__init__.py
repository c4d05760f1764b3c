"""The paper's table: letters against digits after a convolutional network that some of the writers trained."""

from experiments.femnist.study import FEMNIST_FULL, FEMNIST_TABLE

STUDIES = (FEMNIST_TABLE, FEMNIST_FULL)
