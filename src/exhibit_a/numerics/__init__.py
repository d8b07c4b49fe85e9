"""Mathematics that knows no model: distances, correlations, intervals, seeds, threads."""
