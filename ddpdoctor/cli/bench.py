"""``ddpdoctor bench``: how well this machine trains with more ranks, and what limits it."""

import json
from dataclasses import replace

from ddpdoctor.bench.bench_run import BenchFailed, run
from ddpdoctor.bench.report import head, to_json, to_text
from ddpdoctor.bench.results import Results
from ddpdoctor.bench.setting import HEADS, Setting, default_setting
from ddpdoctor.cli.errors import UsageError
from ddpdoctor.cli.launch_from_options import ranks_on
from ddpdoctor.cli.options import BenchFormat, BenchOptions
from ddpdoctor.cli.report_output import open_output, write_text
from ddpdoctor.cli.temporary import temporary_folder
from ddpdoctor.host import Host
from ddpdoctor.host.cgroup import read_cgroup
from ddpdoctor.host.gpus import default_backend, visible_gpus
from ddpdoctor.launch import Launch
from ddpdoctor.progress import Progress


def run_bench(options: BenchOptions) -> int:
    """Measure, write the figures, return the exit status; UsageError for an impossible option or a failed rank."""
    host = Host(Launch())
    setting = _setting(host, options)
    temporary_folder()
    file = open_output(options.output)
    cpus = read_cgroup(host.system).granted(host.system.cpus()[1])
    try:
        with Progress(quiet=options.quiet) as progress:
            results = run(setting, cpus, options.timeout, progress.stage)
    except BenchFailed as failed:
        raise UsageError(str(failed)) from None
    write_text(_text(results, options.format), file)
    return 0


def _text(results: Results, format: BenchFormat) -> str:
    match format:
        case BenchFormat.TABLE:
            return to_text(results)
        case BenchFormat.JSON:
            return json.dumps(to_json(results), indent=2) + "\n"
        case BenchFormat.HTML:
            from ddpdoctor.bench.figures import sections
            from ddpdoctor.report.html import sections_page

            return sections_page("ddpdoctor bench", head(results), sections(results))


def _setting(host: Host, options: BenchOptions) -> Setting:
    ranks = ranks_on(host, options.nproc)
    backend = (options.backend or default_backend(host, ranks)).lower()
    if backend not in ("gloo", "nccl"):
        raise UsageError(f"--backend {backend} is neither gloo nor nccl")
    if backend == "nccl" and len(visible_gpus(host)) < ranks:
        raise UsageError(f"--backend nccl requires a GPU for each of {ranks} ranks; --backend gloo none")
    if options.width and options.width % HEADS:
        raise UsageError(f"--width {options.width} is not a multiple of {HEADS}, the heads of the model")
    usual = default_setting(ranks, backend, quick=options.quick)
    return replace(
        usual,
        threads=options.threads,
        batch_size=options.batch_size or usual.batch_size,
        width=options.width or usual.width,
        layers=options.layers or usual.layers,
    )
