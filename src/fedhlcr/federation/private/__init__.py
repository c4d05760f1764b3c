"""A federation under differential privacy: all that leaves the agents is a fixed number of noisy sums.

    units.py     where columns lie, how far they spread and how they correlate: four noisy sums before the first round
    scores.py    the agents' half of a round: scores, sizes and residuals around what the server broadcast
    filter.py    the server's half of a round: regressions, sizes and noise of clusters, from noisy sums
    queries.py   what the server asks        agents.py   how agents answer
    inquiry.py   the bytes of a query, and of a node's answer
    server.py    the server of a run         run.py      the loop, with or without secure aggregation

The mechanism itself (clip, round, add up, add noise) and its accounting are in `fedhlcr.privacy`.
"""
