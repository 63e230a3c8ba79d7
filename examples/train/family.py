"""Train the whole embedded family: `python examples/train/family.py`. Call again to go on after an interruption."""

from __future__ import annotations

import argparse

import torch

import train_generator
import train_reward

GENERATORS = ("tiny-0.1m", "tiny-0.5m", "tiny-2m", "tiny-bpe")
REWARDS = ("tiny-prm", "tiny-orm", "tiny-prm-weak")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=24, help="shards of the corpus, 10,000 problems each")
    parser.add_argument("--problems", type=int, default=8_000, help="problems of the reward models' data")
    parser.add_argument("--each", type=int, default=4, help="samples of every generator for each of them")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for name in GENERATORS:
        train_generator.generator(name, train_generator.PLANS[name], arguments.shards)
    solutions = train_reward.labelled(arguments.problems, arguments.each)
    for name in REWARDS:
        train_reward.reward(name, train_reward.PLANS[name], solutions)


if __name__ == "__main__":
    main()
