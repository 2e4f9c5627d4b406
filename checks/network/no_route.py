from ddpdoctor.check import Check
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, log_fields
from ddpdoctor.model import Judgement, Role

_DIALS = r"[Cc]onnect(?:ing)?(?: to)?,? (?:remote=)?"
_LINK_LOCAL = (
    rf"{_DIALS}\[?(?P<address>169\.254\.[\d.]+|fe80:[\w:.%-]+?)[\]<]"
    r".{0,80}(?:fail|refused|timed out)"
)
_CHOSEN = r"NCCL INFO Bootstrap ?: ?Using \[?\d*\]?[^\s:]+:(?P<address>169\.254\.[\d.]+|fe80:[\w:.%-]+)<"
"""The interface over which ranks meet: adapters of a management controller have such an address on every node."""
_NO_ROUTE = (
    rf"{_DIALS}\[?(?P<address>[\w.:%-]{{1,80}}?)[\]<:]"
    r".{0,80}(?:No route to host|Network is unreachable)"
)


class NoRoute(Check):
    """There is no route to a peer's address.

    What it finds:
        A connection between ranks that failed for want of a route: no route to the host, an unreachable network, or a
        link-local address (169.254.x.x, fe80::), which means something on its own link only.

    Why it matters:
        Ranks give each other the address of the interface that they have chosen. Where nodes choose different
        networks, or an interface without a real address, the others cannot dial it.

    Example:
        NCCL WARN Connect to fe80::ec4:7aff:fe0c:1b2c%enp1s0<44321> failed : Network is unreachable

    Fix:
        Name the network that all nodes share: export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0
    """

    code = "DD709"
    title = "ranks have routes to each other"
    raises = (_LINK_LOCAL, _NO_ROUTE)
    log_words = (
        "onnect to ",
        "onnecting to ",
        "connect [",
        "connect, remote=",
        "Bootstrap",
        "No route to host",
        "Network is unreachable",
    )

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_LINK_LOCAL, _NO_ROUTE)
        role = Role.CAUSE
        if reason is None and log.failed and not log.training:
            reason, role = log.search(_CHOSEN), Role.LIBRARY
        if reason is None or "[c10d]" in reason.match.string:  # the store's address is DD004's
            return NOT_IN_OUTPUT
        address = reason.match["address"]
        local = address.startswith(("169.254.", "fe80:"))
        return self.fail(
            f"a rank gave out the link-local address {address}"
            if local
            else f"there was no route to {address}",
            why="An address of this kind holds on its own link only; the interface has no real address. "
            if local
            else "The node that dialled has no route there: the peer gave out an address of a network that "
            "this node is not in.",
            fix="ip -br address     # on every node: the interface of the network that they share\n"
            "export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0\nip route get ADDRESS     # where it would go",
            **log_fields(reason, role=role),
        )
