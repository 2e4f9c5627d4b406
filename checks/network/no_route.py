from ddpdoctor.check import Check, Judgement, Kind, Passed, Role, Skipped
from ddpdoctor.group.group_record import GroupRecord, Stage
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, log_fields
from ddpdoctor.nodes.links import NO_ANSWER
from ddpdoctor.text import listing, plural

_CONNECT = r"[Cc]onnect(?:ing)?(?: to)?,? (?:remote=)?"
_LINK_LOCAL = (
    rf"{_CONNECT}\[?(?P<address>169\.254\.[\d.]+|fe80:[\w:.%-]+?)[\]<]"
    r".{0,80}(?:fail|refused|timed out)"
)
_CHOSEN = r"NCCL INFO Bootstrap ?: ?Using \[?\d*\]?[^\s:]+:(?P<address>169\.254\.[\d.]+|fe80:[\w:.%-]+)<"
"""The interface over which ranks meet: adapters of a management controller have such an address on every node."""
_NO_ROUTE = (
    rf"{_CONNECT}\[?(?P<address>[\w.:%-]{{1,80}}?)[\]<:]"
    r".{0,80}(?:No route to host|Network is unreachable|Software caused connection abort)"
)


class NoRoute(Check):
    """There is no route to a peer's address.

    What it finds:
        A connection between ranks that failed with "No route to host", "Network is unreachable" or "Software caused
        connection abort", or used a link-local address (169.254.x.x, fe80::), which is valid on its own link only. In
        a check of several hosts, each host also connects to the address that the ranks of the others announce.

    Why it matters:
        Ranks connect to the address of the interface that their peer has chosen. If nodes choose interfaces of
        different networks, or one without a routable address, the connection fails.

    Example:
        NCCL WARN Connect to fe80::ec4:7aff:fe0c:1b2c%enp1s0<44321> failed : Network is unreachable

    Fix:
        Name the interface of the network that all nodes share, which ip -br address lists on every node:
            export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0
    """

    code = "DD709"
    title = "ranks have routes to each other"
    raises = (_LINK_LOCAL, _NO_ROUTE)
    log_words = ("Bootstrap",)

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        if not ranks.links:
            return Skipped("the job has one host" if ranks.launch.nnodes == 1 else "not all hosts joined")
        names = ranks.node_names
        failed = [link for link in ranks.links if link.error not in ("", NO_ANSWER)]
        if not failed:
            return Passed(f"{plural(len(ranks.links), 'connection')} between the hosts found a route")
        report = self.fail if ranks.broken and ranks.stage is Stage.JOIN else self.info
        pairs = [f"{names[link.source]} to {names[link.target]} at {link.address}" for link in failed]
        return report(
            f"a connection fails from {listing(pairs)}: {failed[0].error}",
            evidence=[
                f"{names[link.source]} to {names[link.target]}, {link.address} port {link.port}: {link.error}"
                for link in failed
            ],
            about=Kind.HOST.of(*(names[link.target] for link in failed)),
        )

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_LINK_LOCAL, _NO_ROUTE)
        role = Role.CAUSE
        if reason is None and log.failed and not log.training:
            reason, role = log.search(_CHOSEN), Role.ATTEMPT
        if reason is None or "[c10d]" in reason.match.string:  # the store's address is DD004's
            return NOT_IN_OUTPUT
        address = reason.match["address"]
        local = address.startswith(("169.254.", "fe80:"))
        aborted = "connection abort" in reason.match[0]
        headline = (
            f"a rank announced the link-local address {address}"
            if local
            else f"the connection to {address} was aborted while it was made"
            if aborted
            else f"there was no route to {address}"
        )
        return self.fail(headline, **log_fields(reason, role=role))
