"""The back end for NVIDIA's graphics processors: machine code by NVRTC, devices by the driver."""
