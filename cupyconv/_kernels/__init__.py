"""One module for each kernel: its plan or refusal, its instances, its arguments, its words.

A module has the stem of its ``.cu`` file and imports no other kernel's module. What several of them
use has a module of its own: `launches`, `members`, `memory`, `modes`, `packed_weights`,
`question`, `sums` and `views`. Large kernels have helpers with the same first word,
such as `matrix_tiles`. `fused` composes two kernels, and `choice` alone compares them.
"""
