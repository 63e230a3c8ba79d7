"""What a file says: an experiment with its parts, its grid and its questions, checked before anything runs."""
