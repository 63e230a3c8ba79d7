"""Puts the figures of the examples, one folder up, where Python finds them. Import it before them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
