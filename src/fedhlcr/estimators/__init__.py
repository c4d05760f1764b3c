"""The public face: scikit-learn estimators. `fedhlcr` exports them.

Nothing is imported here: `saved` predicts without scikit-learn, which takes more than a second to import.
"""
