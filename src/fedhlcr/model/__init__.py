"""The model: Gram matrices, one Bayesian regression, and the priors."""
