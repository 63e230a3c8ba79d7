"""Statistics and figures over arrays: estimators, the bootstrap, theory."""
