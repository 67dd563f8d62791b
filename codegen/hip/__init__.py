"""HIP: kernel text for AMD's graphics processors. Nothing here compiles it, and nothing runs it yet.

arch       architectures by name, with what they allow a kernel: warps of 32 or 64 threads
prelude    what the text is made of, for clang, with no headers
"""
