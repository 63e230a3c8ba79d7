"""Tasks: what is asked, how an answer is read, and when it is right."""
