#!/bin/sh
# Keeps jobs off a node that cannot train: Slurm runs this on each node before a job, where slurm.conf says
#     Prolog=/etc/slurm/slurm-prolog.sh
# With a problem found, the node is drained, the headline is its reason (sinfo -R), and the job goes to other nodes.
# Where the node could not be examined, or that took too long, the job starts, and slurmd's log says so.
DDPDOCTOR=${DDPDOCTOR:-/opt/ddpdoctor/bin/ddpdoctor}
SECONDS_AT_MOST=${SECONDS_AT_MOST:-60}
NPROC=$(ls -d /dev/nvidia[0-9]* 2>/dev/null | wc -l)
[ "$NPROC" -gt 1 ] || NPROC=2

# The variables of the job's allocation are not the node's: they would make this a part of a job on several hosts.
report=$(env -i PATH="$PATH" HOME="${HOME:-/root}" timeout "$SECONDS_AT_MOST" "$DDPDOCTOR" check --quiet \
    --select host,group --nproc "$NPROC" --fail-on fail 2>&1)
status=$?
[ "$status" -eq 0 ] && exit 0
echo "$report" >&2
[ "$status" -eq 1 ] || exit 0
reason=$(echo "$report" | sed -n 's/^FAIL\[\(DD[0-9]*\)\]: /\1 /p' | head -n 1)
scontrol update NodeName="$SLURMD_NODENAME" State=DRAIN Reason="ddpdoctor: $reason"
exit 1
