"""Audits: what a curious server finds out in plain and in secure mode, and whether differential privacy holds.

view, recording                what the server has seen of a run
reconstruction, rows, scoring  the attack on it, and how much of what it claims is true
wire                           the same attack on the messages of secure aggregation
membership                     whether the noise hides that an agent took part
"""
