"""One module for each kernel: its plan or refusal, its instances, its arguments, its words.

A module has the stem of its ``.cu`` file and imports no other kernel's module. What several of them
use has a module of its own: `axes`, `launches`, `members`, `memory`, `modes`, `packed_weights`,
`question`, `sums` and `views`. `fused` composes two kernels, and `choice` alone compares them.
"""
