"""An experiment in shards: many drivers, each with a part of the problems, one run."""
