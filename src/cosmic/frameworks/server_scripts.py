"""Servers on hosts: where the instances of each pool run, and the script that starts them and the router before them.

The script is the same on every host. It has one function for each pool, called with the GPUs and the port of a server;
what differs between hosts (the place in an instance that spans several of them, the address of its first host) follows
as further arguments. Hosts are counted from 0 (NODE_RANK) in the order of their names (HOSTS).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cosmic.frameworks.launch_quoting import ArgumentValue, quote_options, quote_word
from cosmic.frameworks.served_launch import EnginePool

ROUTER_PORT = 8000
FIRST_PORT = 8001
INDENT = "  "
LOCAL = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One engine instance."""

    pool: EnginePool
    first: int
    """First of its hosts."""
    gpus: tuple[int, ...]
    """GPUs on each of its hosts."""
    port: int

    @property
    def hosts(self) -> range:
        """Its hosts."""
        return range(self.first, self.first + self.pool.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlace:
    """A server on one of its hosts."""

    server: Server
    host: int
    alone: bool
    """Whether there is only one host in all."""

    @property
    def rank(self) -> int:
        """Place of this host among those of the server."""
        return self.host - self.server.first

    @property
    def head(self) -> str:
        """The address of the server's first host, as the script has it."""
        return host_address(self.server.first, single_host=self.alone)


def host_address(host: int, *, single_host: bool) -> str:
    """Return the address of a host, as a word of the script."""
    return LOCAL if single_host else f'"${{HOST[{host}]}}"'


def server_url(server: Server, *, single_host: bool, scheme: str = "http://") -> str:
    """Return where a server listens, as a word of the script."""
    if single_host:
        return f"{scheme}{LOCAL}:{server.port}"
    return f'"{scheme}${{HOST[{server.first}]}}:{server.port}"'


def place_servers(pools: Iterable[EnginePool]) -> list[Server]:
    """Return the instances of all pools on hosts; an instance that spans hosts has them to itself.

    Clients reach a single one at the port of the router, which is then not needed.

    >>> size = {"pp": 1, "ep": 1, "ranks": 1, "etp": 1, "batched_tokens": 1, "host": 8}
    >>> both = [EnginePool(role="prefill", replicas=1, tp=4, **size), EnginePool(role="decode", replicas=1, tp=16, **size)]
    >>> [(each.first, each.gpus, each.port) for each in place_servers(both)]
    [(0, (0, 1, 2, 3), 8001), (1, (0, 1, 2, 3, 4, 5, 6, 7), 8001)]
    """
    servers_placed: list[Server] = []
    host, used, servers = 0, 0, 0
    previous: EnginePool | None = None
    for pool in pools:
        for _ in range(pool.replicas):
            starts_host = previous is not None and (previous.apart or pool.apart) and previous is not pool
            if used and (starts_host or pool.nodes > 1 or used + pool.gpus > pool.host):
                host, used, servers = host + 1, 0, 0
            gpus = tuple(range(used, used + pool.gpus))
            servers_placed.append(Server(pool=pool, first=host, gpus=gpus, port=FIRST_PORT + servers))
            used, servers, previous = used + pool.gpus, servers + 1, pool
            if pool.nodes > 1:
                host, used, servers = host + pool.nodes, 0, 0
    return (
        servers_placed if len(servers_placed) > 1 else [replace(server, port=ROUTER_PORT) for server in servers_placed]
    )


def count_server_hosts(servers: Sequence[Server]) -> int:
    """Return how many hosts the servers need."""
    return max(server.hosts.stop for server in servers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCommand:
    """How a pool's servers are started."""

    program: str
    """Program and model, quoted."""
    arguments: Mapping[str, ArgumentValue]
    before: str = "CUDA_VISIBLE_DEVICES=$1"
    """What stands before the program: variables, or another program that starts it. $1 are the GPUs, $2 is the port."""
    last: tuple[str, ...] = ('--port "$2"',)
    """Further lines of arguments, quoted."""
    rest: str = '"${@:3}"'
    """What differs between hosts."""

    def function(self, role: str) -> list[str]:
        """Return the lines of the shell function that starts a server of a pool."""
        lines = [f"{self.before} {self.program}", *quote_options(self.arguments), *self.last, self.rest]
        body = f" \\\n{INDENT * 2}".join(filter(None, lines))
        return [f"{role}() {{  # GPUs, port, what differs between hosts", f"{INDENT}{body}", "}"]


def script_body(
    servers: Sequence[Server],
    commands: Mapping[str, ServerCommand],
    further: Callable[[ServerPlace], list[str] | None],
    router: Sequence[str],
    prepared: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return the lines of a script that starts *servers* by the *commands* of their pools, and the *router*.

    *further* returns the arguments of a server that depend on the host, quoted; None if that host starts nothing.
    *prepared* lines come before the servers.
    """
    count = count_server_hosts(servers)
    lines = _host_lines(count)
    for role, command in commands.items():
        lines += ["", *command.function(role)]
    calls = _server_calls(servers, count, further)
    lines += ["", *prepared, *_group_calls(calls)]
    if router:
        lines += _run_on_first(" \\\n".join([router[0], *(f"{INDENT}{line}" for line in router[1:])]) + " &", count)
    return (*lines, "wait")


def _host_lines(count: int) -> list[str]:
    if count == 1:
        return []
    return [
        f'read -r -a HOST <<< "${{HOSTS:?the names of all {count} hosts, with blanks between}}"',
        ': "${NODE_RANK:?the place of this host in HOSTS, from 0}"',
    ]


def _server_calls(
    servers: Sequence[Server], count: int, further: Callable[[ServerPlace], list[str] | None]
) -> list[tuple[str, ...]]:
    """Return what each host starts."""
    calls: list[list[str]] = [[] for _ in range(count)]
    for server in servers:
        gpus = ",".join(map(str, server.gpus))
        for host in server.hosts:
            rest = further(ServerPlace(server=server, host=host, alone=count == 1))
            if rest is not None:
                calls[host].append(" ".join([server.pool.role, gpus, str(server.port), *rest, "&"]))
    return [tuple(lines) for lines in calls]


def _group_calls(calls: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the lines that start what a host runs; hosts that run the same share them."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for host, started in enumerate(calls):
        alike.setdefault(started, []).append(host)
    if len(alike) == 1:
        return list(calls[0])
    lines = ["case $NODE_RANK in"]
    for started, hosts in alike.items():
        if started:
            pattern = " | ".join(map(str, hosts))
            lines += [f"{INDENT}{pattern})", *(INDENT * 2 + line for line in started), f"{INDENT * 2};;"]
    return [*lines, "esac"]


def _run_on_first(command: str, count: int) -> list[str]:
    if count == 1:
        return [command]
    indented = command.replace("\n", f"\n{INDENT}")
    return ['if [ "$NODE_RANK" = 0 ]; then', f"{INDENT}{indented}", "fi"]


def quote_program(program: str, model: str) -> str:
    """Return a program with its model as the words of a shell."""
    return f"{program} {quote_word(model)}"
