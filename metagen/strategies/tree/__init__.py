"""Tree search: one tree of steps, and rules that say which of its nodes are extended."""
