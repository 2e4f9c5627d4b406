"""Every measured threshold by which a process is called busy and a job hung, in seconds where no unit is named.

What a command then does, and for how long it lets others end, stands with the command.
"""

# -- one process, between two looks ------------------------------------------------------------------------------

LOOK_SECONDS = 1.0
"""Between looks: in less, single ticks of a busy machine pass for work."""
LONGEST_SPAN = 5 * LOOK_SECONDS
"""Over a longer time an average says nothing of its end: a process may have begun to work just now."""
BUSY_SHARE = 0.1
"""Of one CPU; threads of torch that only wait look again and again, which takes up to a twentieth."""
LITTLE_SHARE = 0.02
"""Of one CPU, used by a main thread, or by a rank that waits for no other: one that downloads uses little, one that
is blocked nothing."""
STARVED_SHARE = 0.25
"""Of the time, in which threads queued for a CPU: a process may get too little to be seen at work. Idle machines
show up to 0.05, ones with a second busy process on each CPU 0.5 and more."""
LONGEST_DELAY = 60.0
"""Seconds by which a deadline of ours moves, at most, while processes of ours are starved or at work."""
SHORT_SLICE = 200_000
"""Nanoseconds; a thread that looks whether there is something to do runs for 25 us, one that works for milliseconds."""
MUCH_DATA = 64 << 10
"""Bytes a second; what a process reads and writes that only waits is less."""
MOST_WAKES = 20.0
"""In a second, of a thread that waits for one thing; some waits look up now and then."""
FLOW_WAKES = 1.0
"""In a second, of a thread that reads from a connection: nothing but data wakes it."""

# -- one rank ----------------------------------------------------------------------------------------------------

QUIET_SECONDS = 1.0
"""Without a word in any record; before that nobody looks at the processes."""
FRESH_SECONDS = 3.0
"""A process says where it is four times a second; who says nothing holds the interpreter's lock, or is stopped."""
SHARED_DISK_SECONDS = 10.0
"""For what a rank writes on one host to be read on another, over a network file system that keeps copies."""
SHORTEST_SLEEP = 1.0
"""A shorter sleep is a turn of a loop that looks again and again."""
SLEEP_SECONDS = 60.0
"""For a rank that sleeps and will wake up by itself."""
OUTSIDE_SECONDS = 60.0
"""For a rank that waits for a server outside of the job, of which nobody sees whether it works: proxies and load
balancers give an answer this long."""

# -- a job -------------------------------------------------------------------------------------------------------

HANG_SECONDS = 5.0
"""Without a sign of progress while somebody waits and nobody works."""
FIRST_SECONDS = {"nccl": 60.0}
"""Where every rank waits, by the backend: NCCL sets up its connections in the first collective, for which a large job
needs many seconds, and its threads spin whether data flow or not."""
PAUSE_FACTOR = 3.0
"""As many times the longest pause that ended by itself are waited for."""
PAUSE_MEMORY = 1800.0
"""For which a pause of ranks that all wait is remembered: what made it long, as a machine that was busy, is over then.
One in which some were away, as to save, may come once in hours."""
LONGEST_HANG_SECONDS = 60.0
"""The most that pauses of this very run make of it."""
START_SECONDS = 60.0
"""Where every rank is blocked and none waits for another, or none has appeared: a lock, or data that are mounted, may
still come."""
SPIN_SECONDS = 8.0
"""Where ranks of ours use CPUs and lack none: no step of theirs takes a second by itself. A GPU's first step may take
as long."""
TIMEOUTS = {"nccl": 600.0}
OTHER_TIMEOUT = 1800.0
"""Of a process group, where the script gives none."""
TIMEOUT_SHARE = 0.5
"""Of it, that the others wait for a rank that works."""
LEAST_TIMEOUT = 60.0
"""A shorter timeout of a process group comes soon enough, and says itself who waited."""
