"""Graphics processors: loop IR bound to blocks and threads, as C text over a small prelude.

program   kernels as text with what a launch of each needs; what every runtime and the emulator take
prelude   the functions and types that the text calls, one file per platform (CUDA, the emulator on a CPU)
emulator  runs the text on a CPU, and says what a device might do wrong with it
"""
