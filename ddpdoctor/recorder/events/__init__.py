"""What the recorder can see: each kind of event is a dataclass here, by area, or in the patch that writes it.

A patch makes the event and gives it to ``session.event``; ``schema.encode`` writes it down by its fields, and
``decode`` makes the same event of it for whoever asks the record for its class. Nothing stands in between: a new
field, or a new class, is there for every check.
"""
