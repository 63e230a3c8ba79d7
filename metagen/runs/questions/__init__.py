"""Questions that a study asks of its curves, each answered with a number, an interval and words."""
