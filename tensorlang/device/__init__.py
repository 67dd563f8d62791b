"""Kernels and models on graphics processors.

driver    a tensor-IR program becomes kernels as C text
"""
