"""Prints the table of PAPER.md: how far each sampler is from the exact posterior."""

from __future__ import annotations

import logging

from tests.federation import test_federated_exactness as federated
from tests.samplers import test_exactness

N_VISITS = 20_000
FEDERATIONS = {
    **{f"federated, delta rule, {case}": params for case, params in federated.CASES.items()},
    "federated, blend rule, γ = 1": {"rule": "blend", "learning_rate": 1.0},
    "federated, blend rule, γ = 0.2": {"rule": "blend", "learning_rate": 0.2},
    "federated, blend rule as published, γ = 0.2, one of three agents": {
        "rule": "blend",
        "learning_rate": 0.2,
        "participation": 0.33,
        "participation_scaling": False,
    },
}


def print_row(name: str, distance: float, floor: float) -> None:
    print(f"| {name} | {distance:.4f} | {floor:.4f} |", flush=True)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    print("| sampler | total variation | floor |\n|---|---|---|")
    for name, step in test_exactness.SAMPLERS.items():
        print_row(name, *test_exactness.total_variation(test_exactness.problem(), step, N_VISITS))
    for name, params in FEDERATIONS.items():
        print_row(name, *federated.total_variation(federated.tiny(), N_VISITS, spacing=1, **params))
