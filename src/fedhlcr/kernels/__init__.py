"""The hot loops: arrays in, arrays out, nothing else. The only place that knows numba.

Every kernel releases the GIL, so that plain Python threads run blocks side by side, and computes each
entity with one and the same sequence of operations wherever it stands in its block: the result does
not depend on how the work is cut into blocks, nor on the number of threads.

Kernels call only kernels of their own file: numba's on-disk cache follows the timestamp of the file a
kernel stands in, and not those of the kernels it calls. Readable twins stand in `fedhlcr.reference`; the
tests hold one against the other, with the compiler on and off.
"""
