"""The paper's experiments, and the rivals beside it: each figure and table by one command.

`python -m experiments` runs all in their quick form, `python -m experiments --full` as RESULTS.md shows them.
"""
