"""The paper's figures on data drawn from the model."""

from experiments.synthetic.convergence import CONVERGENCE
from experiments.synthetic.figure_a import FIGURE_A
from experiments.synthetic.figure_b import FIGURE_B
from experiments.synthetic.figure_c import FIGURE_C
from experiments.synthetic.labels import LABELS
from experiments.synthetic.misspecified import MISSPECIFIED

STUDIES = (FIGURE_A, LABELS, FIGURE_B, FIGURE_C, CONVERGENCE, MISSPECIFIED)
