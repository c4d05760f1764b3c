"""Why a node does not take part: what the server sees, and what only the node's own log says."""

from __future__ import annotations

import traceback

from fedhlcr.exceptions import DisclosureError, Refusal

# The kind of refusal of a node whose table no longer has an agent that it announced.
UNKNOWN_AGENT = "UnknownAgent"
# The kind of refusal of a node that insists on secure aggregation.
PLAIN_REFUSED = "PlainRefused"
# The kind of refusal of a node that only takes part in private runs.
PRIVACY_REQUIRED = "PrivacyRequired"
# The kind of refusal of a node that cannot go on with the round of a secure sum.
ROUND_LOST = "RoundLost"


def refusal_of(error: Exception) -> Refusal:
    """Return the refusal that stands for an error. The error's own text is left out, because it may quote the data."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, DisclosureError):
        return Refusal("DisclosureError", "a mod at the node withholds the answer; see the node's log", str(error))
    places = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-3:]]
    return Refusal(type(error).__name__, "unexpected error; see the node's log", "at " + ", ".join(places))
