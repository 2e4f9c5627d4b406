#!/usr/bin/env bash
# One machine: a rank for each of its GPUs, or as many as NPROC says.
#
#     ./train.sh --config configs/two_ranks.yaml train.epochs=3
#     NPROC=4 TRAINER=my_trainer.py ./train.sh
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
trainer=${TRAINER:-$here/../trainer.py}

gpus() {
    if command -v nvidia-smi > /dev/null; then nvidia-smi --list-gpus || true; fi | wc -l
}

nproc=${NPROC:-$(gpus)}
((nproc > 0)) || nproc=2 # without GPUs: the fewest that make a group

# Each rank computes with its part of the CPUs; torchrun would give it one thread.
cpus=$(getconf _NPROCESSORS_ONLN)
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cpus > nproc ? cpus / nproc : 1))}

# --standalone takes a free port, so that two of these can run on one machine.
exec torchrun --standalone --nproc-per-node "$nproc" "$trainer" "$@"
