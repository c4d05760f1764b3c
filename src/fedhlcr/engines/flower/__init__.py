"""The federation on Flower: in its simulation runtime, or over a network between a SuperLink and SuperNodes.

The server, the agents and their messages are those of `fedhlcr.federation`; this package only carries the messages.

    server_app           at the SuperLink: a whole run
    engine, attendance   at the SuperLink: sends messages through a Flower Grid; decides which nodes take part
    transport, sizes     each reply has a thread, a deadline and a largest size of its own
    names                which node may hold which agents
    packing              compression of messages
    sum_round, open_sum  secure aggregation: at the SuperLink, and at a SuperNode in a file between messages
    peers                secure aggregation: nodes' keys, and those of the others that a node knows
    client_app, node     at a SuperNode: its table, its agents, and the file with their labels
    records              conversion of messages to and from Flower's records: all that nodes and server exchange
    options              options of a run, in the pyproject of an app (`app_folder` writes one), and of a node
    refusal              why a node does not take part
    preview              what a node would send, for its owner
    certificates         a private CA, a server certificate, node keys
    server_folder, server_service, node_folder, node_checks, node_service
                         the commands `fedhlcr flower server` and `node`; `supervisor` restarts what ends, `units` has
                         files for systemd
    loopback, demo       a whole federation on this machine, over real sockets
"""
