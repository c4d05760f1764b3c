"""The hot loops: functions on arrays, compiled by numba. No other package uses numba.

Every kernel releases the GIL, so that plain Python threads run blocks in parallel. A kernel computes each entity with
the same sequence of operations wherever it is in its block, so results depend neither on the blocks nor on the number
of threads.

Compiled kernels are kept on disk, and compiled again after any kernel's source has changed (`kernels.compiling`).
`fedhlcr.reference` has slow, readable versions of the label kernels; the tests compare the two, with the compiler on
and off.
"""

from fedhlcr.kernels import ahead as ahead  # it has kernels compiled in groups
