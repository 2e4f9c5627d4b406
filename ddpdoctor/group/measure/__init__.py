"""The measurements of the live group: one module each, with ``measure(context)`` and ``SECONDS``.

``measure`` runs on every rank at the same position, may use collectives, and returns plain values that
JSON can hold. ``SECONDS`` is the deadline: a rank that is not done by then counts as hung. A module may
have ``begin(context)``, called on every rank before the first measurement, for work that overlaps with
the others (a slow write in a thread). Judging is not done here: a check's ``examine_group`` compares the
ranks' values. To add a measurement, add its module, name it in :data:`ORDER` and in a check's
``measurements``.
"""

ORDER = ("variables", "collectives", "transport", "weights", "uneven", "sampler", "checkpoint")
"""The order in which they run: what explains the others first, and what waits for a slow write last."""
TIMED = ("collectives", "transport")
"""Those whose seconds count; nothing else is started beside them."""


def module_of(name: str) -> str:
    """Its module; a measurement that is not the group's own goes by its whole name."""
    return name if "." in name else f"{__name__}.{name}"
