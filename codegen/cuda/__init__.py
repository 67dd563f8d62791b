"""CUDA: kernel text to machine code for one architecture, and the machine code run on a device. The only user of NVIDIA's packages.

arch      the architectures by name: what they allow and what they can do
prelude   what stands before text
compile   text to cubin by NVRTC, kept on disk; needs no device and no driver
sass      the instructions of a cubin
device    memory, launches and graphs on a device

`arch` and `errors` need nothing but Python. Importing the others without the packages of `tensorlang[cuda]` raises `Unavailable`.
"""
