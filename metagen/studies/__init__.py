"""Studies: questions asked of experiments; frontiers, comparisons, recommendations."""
