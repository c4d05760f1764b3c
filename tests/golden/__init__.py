"""What a release computed, kept on disk: same seed, same numbers.

`python -m tests.golden` writes the files anew; do that only where CHANGELOG.md lists what differs under "Changed
results". On the machine that wrote them they agree to the last bit (`GOLDEN_EXACT=1 pytest tests/test_golden.py`); on
another one, whose linear algebra may round differently, labels are equal and numbers agree to nine digits.
"""
