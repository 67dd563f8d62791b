"""Certificates of kernels, for `scripts/check_certificate.py` to accept or reject."""

from tensorlang.certificate.document import certificate, written

__all__ = ["certificate", "written"]
