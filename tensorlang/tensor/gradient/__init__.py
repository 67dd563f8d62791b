"""Reverse mode: from a program to one that computes the derivatives of its results, again equations.

    y[i, j] = sum(k) a[i, k] * b[k, j]      ->      d_a[i, k] = sum(j) d_y[i, j] * b[k, j]
                                                    d_b[k, j] = sum(i) a[i, k] * d_y[i, j]

`gradient` is all that others need. docs/gradients.md says what is differentiated how.
"""

from tensorlang.tensor.gradient.reverse import gradient

__all__ = ["gradient"]
