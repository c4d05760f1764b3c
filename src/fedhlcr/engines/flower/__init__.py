"""The federation on Flower: in its simulation runtime, or over a network between a SuperLink and SuperNodes.

The server, the agents and their messages are those of `fedhlcr.federation`; what is here only carries them.

    server_app, engine   at the SuperLink: the loop of `federation.run`, with a Flower Grid for a post office
    client_app, node     at a SuperNode: its table, its agents, and the file that keeps their labels
    records              messages ↔ Flower's records
    options              what can be set, in the pyproject of an app (`app_folder` writes one) and on a node
    certificates         a private CA, a server certificate, node keys
    loopback, demo       a whole federation on this machine, over real sockets
"""
