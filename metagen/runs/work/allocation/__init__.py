"""One budget over a data set: what each problem may spend, and on what."""
