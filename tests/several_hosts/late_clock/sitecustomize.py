"""On PYTHONPATH of a host: its clock is late by 40 seconds."""

import time

_now = time.time
time.time = lambda: _now() - 40.0
