"""Audits: what a curious server finds out in plain and in secure mode, and whether differential privacy holds.

view, recording, vectors       what the server has seen of a run: sums of agents, totals, messages
reconstruction, rows, scoring  the attack on it, and how much of what it claims is true
wire                           the same attack on the messages of secure aggregation
tables                         all of these for one table
membership                     whether the noise hides that an agent took part
"""
