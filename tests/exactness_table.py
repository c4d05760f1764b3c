"""Prints the table of PAPER.md: how far each sampler is from the exact posterior."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from test_exactness import SAMPLERS, problem, total_variation

if __name__ == "__main__":
    print("| sampler | total variation | floor |\n|---|---|---|")
    for name, step in SAMPLERS.items():
        distance, floor = total_variation(problem(), step, 20_000)
        print(f"| {name} | {distance:.4f} | {floor:.4f} |")
