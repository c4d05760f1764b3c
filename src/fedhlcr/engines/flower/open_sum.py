"""The secure sum that a node takes part in, in a file: Flower starts a new process for each of its four messages.

The file holds the node's secrets of the round, and which round was answered last. Each message is answered once, and
the file is written before the reply is sent. When the round is over, or another one begins, the secrets are gone: there
is no older copy of the file.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from fedhlcr.engines.flower.refusal import ROUND_LOST
from fedhlcr.exceptions import CodecError, Refusal, SecureSumError
from fedhlcr.federation.secure_device import SecureDevice
from fedhlcr.privacy.roster import Signer
from fedhlcr.privacy.terms import SumStage, Terms
from fedhlcr.storage import atomic, codec
from fedhlcr.storage.reader import RecordReader
from fedhlcr.storage.records import from_record, to_record, under

logger = logging.getLogger(__name__)

KIND = "open-sum"
VERSION = 1
_CURE = "it is written again in the next round"


@dataclass(frozen=True)
class OpenSum:
    """The file of a node's secure sums in one experiment."""

    path: Path

    def check_new(self, terms: Terms) -> None:
        """Refuse terms of a sum that was begun already.

        No two sums may have the same terms: from two sums over different nodes the server could learn the difference.
        """
        last = self._last()
        if last is not None and _order(terms) <= _order(last):
            raise Refusal(
                "OutdatedSum",
                "the node has answered this round, or a later one, already; stop other runs of this experiment, or "
                "choose another `experiment`",
            )

    def read(self, identity: Signer | None) -> SecureDevice:
        """The device as the last message left it."""
        reader = self._reader()
        device = None if reader is None else reader.part("device.")
        if device is None or device.is_empty:
            cure = "the node was restarted or has answered already, so it is not part of this round; it joins the next"
            raise Refusal(ROUND_LOST, cure)
        return SecureDevice.read(device, identity)

    def handle(self, device: SecureDevice, message: bytes) -> bytes:
        """Answer a message. What the device knows then is in the file before the reply is sent."""
        try:
            reply = device.handle(message)
        except SecureSumError as error:
            cure = "the node takes no part in this sum, because it would not be safe; see the node's log"
            raise Refusal("SecureSumError", cure, str(error)) from None
        self._write(device.terms, None if device.stage is SumStage.OVER else device)
        return reply

    def close(self) -> None:
        """Remove the secrets of a round that was not completed."""
        last = self._last()
        if last is not None:
            self._write(last, None)

    def _write(self, terms: Terms, device: SecureDevice | None) -> None:
        record = under("last.", to_record(terms))
        if device is not None:
            record |= under("device.", device.to_record())
        atomic.write_atomically(self.path, codec.encode(KIND, VERSION, record), keep_previous=False, private=True)

    def _last(self) -> Terms | None:
        reader = self._reader()
        return None if reader is None else from_record(Terms, reader.part("last."))

    def _reader(self) -> RecordReader | None:
        try:
            return RecordReader(codec.decode(self.path.read_bytes(), KIND, VERSION), self.path.name, _CURE)
        except FileNotFoundError:
            return None
        except CodecError as error:
            logger.warning("%s: %s; the node joins the next round.", self.path.name, error)
            return None


def _order(terms: Terms) -> tuple[int, int, int]:
    # all surveys are round 0, and are counted by epochs; later rounds are never repeated, in whatever epoch
    return terms.session, terms.round, terms.epoch if terms.round == 0 else 0
