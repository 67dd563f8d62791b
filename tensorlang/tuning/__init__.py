"""Schedules that are faster than derived ones, found by trying: of operators and of the kernels of models, here or on many machines."""
