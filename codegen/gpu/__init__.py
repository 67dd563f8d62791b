"""Graphics processors: loop IR bound to blocks and threads, as C text over a small prelude.

program   kernels as text with what a launch of each needs; what every runtime and the emulator take
prelude   the functions and types that the text calls: what is the same everywhere, and all of it for the emulator
emulator  runs the text on a CPU, and says what a device might do wrong with it
"""
