"""What keeps an agent's sums to itself: fixed-point numbers and secure sums of them.

Cryptography is imported only by the modules that use it, so that the package works without the extra `privacy`.
"""
