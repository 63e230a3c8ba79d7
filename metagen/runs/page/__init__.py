"""What a reader sees: reports in the terminal and as pages, with their figures and tables."""
