"""Prints the table of PAPER.md: the paper's federation, by learning rate."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from test_federated_accuracy import PAPER_SEEDS, blend_errors, ratio, roughness

N_ROUNDS = 150


def print_row(agents: str, rule: str, runs: list) -> None:
    """How often the limit is reached, when, how rough the way is, and where it ends."""
    each, ends = [errors for errors, _ in runs], [end for _, end in runs]
    reached = [int(np.argmax(errors < 1.1)) + 1 for errors in each if (errors < 1.1).any()]
    when = f"{len(reached)} of {len(each)}, in {', '.join(map(str, sorted(reached)))} rounds" if reached else "none"
    rough = np.median([roughness(errors) for errors in each])
    print(f"| {agents} | {rule} | {when} | {rough:.3f} | {', '.join(f'{end:.2f}' for end in ends)} |", flush=True)


if __name__ == "__main__":
    print("| agents per round | rule | within 10 % of the limit | roughness | end, averaged |\n|---|---|---|---|---|")
    for participation, scaling in ((1.0, True), (0.15, True), (0.15, False)):
        share = "all" if participation == 1.0 else f"{participation:.0%}"
        for rate in (0.1, 0.2, 0.75, 1.0):
            runs = [
                blend_errors(seed, rate, participation, N_ROUNDS, participation_scaling=scaling) for seed in PAPER_SEEDS
            ]
            print_row(share, f"blend{'' if scaling else ' as published'}, γ = {rate}", runs)
        ends = [ratio("S", seed, participation=participation) for seed in PAPER_SEEDS]
        if scaling:
            print(f"| {share} | delta, all learned | | | {', '.join(f'{end:.2f}' for end in ends)} |", flush=True)
