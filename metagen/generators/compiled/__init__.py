"""Machine code for the steps of the torch engine on a CPU: its sources (C++), and how they are built.

torch runs a step as some fifty operations a layer, each with a start of its own, and with several threads a barrier.
For small models and small batches these take longer than the arithmetic. Compiled, a layer is four products of torch's
and four passes between them (`blocks.h`, `attention.h`), and a draw is one (`draw.h`). All tokens of a draft are drawn
in one call, and verified in another (`speculate.h`, `randomness.h`).

They are compiled in the background when an engine is first opened on a machine (`build.py`). Meanwhile, and where there
is no compiler, the engine runs the same steps by torch. Both give the same numbers within rounding.
"""
