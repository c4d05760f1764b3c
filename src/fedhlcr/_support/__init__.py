"""What every layer may lean on: names of arrays, keyed randomness, threads, progress and wording."""
