"""What the lines of a program that no rank ran would do, as far as it follows from the source.

Checks ask :class:`~ddpdoctor.unreached.lines.UnreachedLines`, in ``examine_code``. What is not known is no finding.
"""
