"""Speed, measured as ratios within one run. `make bench` runs all of it; see README.md."""
