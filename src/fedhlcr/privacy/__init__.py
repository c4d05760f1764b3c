"""What keeps an agent's data to itself.

secure sums            `secure_sum`, `party` and what they use: the server learns a total, in fixed-point numbers
differential privacy   `differential_privacy`, `accounting`, `release`, `noise`: noise hides whether an agent took part
disclosure             `disclosure`: agents with few events or entities stay out
audit                  `audit`: attacks and tests that show what each of these hides

Cryptography and OpenDP are imported only where they are used, so that the package works without the extra `privacy`.
"""
