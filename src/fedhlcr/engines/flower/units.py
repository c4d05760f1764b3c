"""A systemd unit that starts a node or a server with the machine, and again whenever it ends."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Sequence
from pathlib import Path

SYSTEMD = """\
# Install it: sudo cp {name}.service /etc/systemd/system/ && sudo systemctl enable --now {name}
[Unit]
Description={description}
Wants=network-online.target time-sync.target
After=network-online.target time-sync.target
StartLimitIntervalSec=0

[Service]
User={user}
WorkingDirectory={folder}
ExecStart={command}
Restart=always
RestartSec=10
KillMode=mixed
TimeoutStopSec=30
NoNewPrivileges=true
PrivateTmp=true
ProtectSystem=full

[Install]
WantedBy=multi-user.target
"""


def systemd_unit(name: str, description: str, folder: Path, arguments: Sequence[str]) -> str:
    """A unit that runs a command of fedhlcr with this Python, as the present user."""
    command = " ".join(map(_word, [str(Path(sys.executable).parent / "fedhlcr"), "flower", *arguments]))
    place = str(folder.absolute()).replace("%", "%%")
    return SYSTEMD.format(name=name, description=description, user=getpass.getuser(), folder=place, command=command)


def _word(text: str) -> str:
    """A word of a unit's command line: systemd would expand percent and dollar signs."""
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{text}"' if " " in text else text
