"""What is concluded from a result: frontiers, limits, laws, difficulty, and the answers to a study's questions."""
