"""Models as they are asked for, without torch: recipes, and descriptions from files alone.

What computes them is in `metagen.generators.torch.models`, the weights that ship in `metagen.generators.tiny`.
"""
