"""One module for each kernel: its plan or refusal, its instances, its arguments, its words.

A module has the stem of its ``.cu`` file and imports no other kernel's module. What several of them
use has a module of its own: `launches`, `members`, `question`, `sums`, `packed_weights`. Only
`choice` compares kernels with each other.
"""
