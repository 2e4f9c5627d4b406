"""The user's program as its text tells it: what is called, what decides, and where values come from.

:class:`Program` answers questions; nobody else reads source. A value's :class:`Origins` say what it comes from, with
the lines in between. Where code was not read, an origin is UNKNOWN, which never leads to a finding above information.
"""

from ddpdoctor.program.conditions import Condition
from ddpdoctor.program.expressions import Expression
from ddpdoctor.program.index import Origins, Source
from ddpdoctor.program.known import Origin
from ddpdoctor.program.program import Program
from ddpdoctor.program.ways_out import WayOut

__all__ = ["Condition", "Expression", "Origin", "Origins", "Program", "Source", "WayOut"]
