"""Reward against KL divergence: exactly where all can be enumerated, and from pools of samples."""
