"""Gram matrices from events."""

from __future__ import annotations

import numpy as np

from fedhlcr.kernels.compiling import kernel


@kernel
def accumulate_grams(X, y, weight, event_start, shift, grams, first, last):
    """Add w·x̃x̃ᵀ of every event of entities [first, last) to their packed grams; x̃ = (1, x, y) − shift."""
    n_features = X.shape[1]
    row = np.empty(n_features + 2)
    for e in range(first, last):
        for n in range(event_start[e], event_start[e + 1]):
            row[0] = 1.0
            for f in range(n_features):
                row[f + 1] = X[n, f] - shift[f]
            row[n_features + 1] = y[n] - shift[n_features]
            p = 0
            for i in range(n_features + 2):
                weighted = weight[n] * row[i]
                for j in range(i + 1):
                    grams[e, p] += weighted * row[j]
                    p += 1
