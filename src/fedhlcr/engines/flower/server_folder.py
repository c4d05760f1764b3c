"""The server's folder: everything that a SuperLink, its nodes and its runs need, made by one command.

keys/             CA, server certificate, node keys (`certificates`)
nodes/NAME/       what to copy to each node (`node_folder`)
app/              the Flower app with the options of a run (`app_folder`)
nginx.conf        the only door for nodes: it forwards nothing else
flwr/, superlink.db, fedhlcr-output/      Flower's files, its database, and the models
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedhlcr.engines.flower.app_folder import write_app
from fedhlcr.engines.flower.certificates import Certificates
from fedhlcr.engines.flower.node_folder import PEERS, write_node_folder
from fedhlcr.engines.flower.processes import flower_environment, run_flwr, write_connection
from fedhlcr.exceptions import ArgumentError, LoopbackError
from fedhlcr.storage.atomic import replace_file

CONNECTION = "federation"
NODE_PORT = 9443
SUPERLINK_PORT = 8000
# The largest request of a node. Before compression a contribution has 543 kB with 64 clusters and 30 features, and
# grows with the square of the features.
LARGEST_BODY = "64m"
# Seconds that a flwr command may take.
COMMAND = 300.0
NGINX = """\
# Nodes may use /v1/fleet/ and nothing else: in Flower's open edition whoever reaches /v1/control/ can run code.
pid {folder}/nginx/nginx.pid;
error_log stderr;
daemon off;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/nginx/body;
    proxy_temp_path {folder}/nginx/proxy;
    fastcgi_temp_path {folder}/nginx/fastcgi;
    uwsgi_temp_path {folder}/nginx/uwsgi;
    scgi_temp_path {folder}/nginx/scgi;
    server {{
        listen {port} ssl;
        ssl_certificate     {folder}/keys/server.crt;
        ssl_certificate_key {folder}/keys/server.key;
        client_max_body_size {body};
        client_body_timeout 60s;
        location /v1/fleet/ {{
            proxy_pass https://127.0.0.1:{superlink};
            proxy_ssl_verify on;
            proxy_ssl_name localhost;
            proxy_ssl_trusted_certificate {folder}/keys/ca.crt;
            proxy_set_header Host $host;
            proxy_read_timeout 120s;
        }}
        location / {{ return 403; }}
    }}
}}
"""


@dataclass(frozen=True)
class ServerFolder:
    """The folder of a server."""

    folder: Path
    superlink_port: int = SUPERLINK_PORT

    @property
    def keys(self) -> Certificates:
        return Certificates(self.folder / "keys")

    @property
    def app(self) -> Path:
        return self.folder / "app"

    @property
    def home(self) -> Path:
        return self.folder / "flwr"

    @property
    def nginx(self) -> Path:
        return self.folder / "nginx.conf"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.superlink_port}"

    def node_folder(self, name: str) -> Path:
        return self.folder / "nodes" / name

    def make(self, hosts: Sequence[str], nodes: Sequence[str], port: int = NODE_PORT) -> None:
        """Make what does not exist yet. The server's own settings are written again."""
        if not self.keys.server.exists() and not hosts:
            raise ArgumentError("pass --host, the name or address by which nodes reach the server.")
        self.keys.make(hosts, nodes)
        if not (self.app / "pyproject.toml").exists():
            write_app(self.app)
        for name in nodes:
            # the host that was named first, and for a server that exists already any of its names
            host = hosts[0] if hosts else _first_host(self.keys)
            write_node_folder(self.node_folder(name), name, f"{host}:{port}")
            replace_file(self.node_folder(name) / "ca.crt", self.keys.ca.read_bytes())
            replace_file(self.node_folder(name) / "node.key", self.keys.node_key(name).read_bytes(), private=True)
        self._list_peers()
        self.home.mkdir(mode=0o700, exist_ok=True)
        (self.folder / "nginx").mkdir(exist_ok=True)
        write_connection(self.home, CONNECTION, self.address, self.keys.ca)
        text = NGINX.format(folder=self.folder.absolute(), port=port, superlink=self.superlink_port, body=LARGEST_BODY)
        self.nginx.write_text(text, encoding="utf-8")

    def _list_peers(self) -> None:
        """Write the public keys of all nodes to each node's folder, for secure aggregation."""
        public = sorted(self.keys.nodes.glob("*.pub"))
        for path in public:
            if self.node_folder(path.stem).is_dir():
                replace_file(self.node_folder(path.stem) / PEERS, b"".join(one.read_bytes() for one in public))

    def nginx_command(self) -> list[str]:
        if shutil.which("nginx") is None:
            raise ArgumentError(
                "nginx is not installed, and SuperLink's port must not be opened: whoever reaches it can run code. "
                "Install nginx (apt install nginx), or pass --no-front and let nodes in some other way that forwards "
                "only /v1/fleet/."
            )
        return ["nginx", "-c", str(self.nginx)]

    def register(self) -> list[str]:
        """Register the keys of all nodes that SuperLink does not know yet. Returns their names."""
        known = {node["name"]: node for node in json.loads(self.flwr("supernode", "list", *_JSON))["nodes"]}
        registered = []
        for path in sorted(self.keys.nodes.glob("*.pub")):
            name = path.stem
            record = self.folder / "nodes" / path.stem / ".registered"
            is_same = record.exists() and record.read_bytes() == path.read_bytes()
            if name in known and is_same:
                continue
            if name in known:
                # it has a new key: the old one must not be let in any more
                self.flwr("supernode", "unregister", str(known[name]["node-id"]), *_JSON)
            self.flwr("supernode", "register", str(path), *_JSON, "--name", name)
            record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            record.write_bytes(path.read_bytes())
            registered.append(name)
        return registered

    def flwr(self, *arguments: str) -> str:
        """Run a flwr command, and return its output."""
        done = run_flwr(arguments, flower_environment(self.home), self.folder, COMMAND)
        if done.returncode:
            raise LoopbackError(f"flwr {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout


_JSON = (CONNECTION, "--format", "json")


def _first_host(keys: Certificates) -> str:
    others = sorted(keys.hosts() - {"localhost", "127.0.0.1"})
    return others[0] if others else "127.0.0.1"
