"""What a fitted model says: summaries, scores, evidence, and the choice of the number of clusters."""
