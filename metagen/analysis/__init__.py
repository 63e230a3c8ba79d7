"""Statistics and figures over arrays: estimators, intervals, theory."""
