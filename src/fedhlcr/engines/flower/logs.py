"""Our log lines where Flower shows its own: on the terminal of the process, and in `flwr log`."""

from __future__ import annotations

import logging

from flwr.common.logger import FLOWER_LOGGER


def log_through_flower() -> None:
    logger = logging.getLogger("fedhlcr")
    logger.handlers = list(FLOWER_LOGGER.handlers)
    logger.setLevel(logging.INFO)
    logger.propagate = False
