"""The paper's printed table: AUC in per cent, by share of the writers who trained the network."""

from __future__ import annotations

METHODS = ("CNN alone", "LR", "HLCR₄", "HLCR₈")
AUC = {
    0.01: ("93.55", "93.60", "96.47", "96.51"),
    0.05: ("94.55", "94.65", "97.16", "97.16"),
    0.1: ("94.70", "94.77", "97.21", "97.25"),
    0.2: ("94.74", "94.77", "97.17", "97.20"),
}
TEXT = """\
The paper has some 3,500 writers and trains the network for 100 rounds of FedAvg with 5 local epochs; here are
{n_writers:,} writers and {n_rounds} rounds, so the levels differ, but gains over LR can be compared. In the paper
training takes 30 to 773 minutes on two 12-core Xeons, HLCR₄ 1.6 to 2.5 minutes more than LR, and HLCR₈ 4.5 to 5.4
minutes more. AUC in per cent:
"""
