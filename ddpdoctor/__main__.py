"""``python -m ddpdoctor`` and the ``ddpdoctor`` command."""

import sys


def main() -> None:
    """Run the command line and leave with its exit status.

    A bug of ours ends with status 2: Python's own 1 would read as a finding.
    """
    from ddpdoctor.cli import run

    try:
        status = run(sys.argv[1:])
    except Exception:  # noqa: BLE001 - whatever it is, the status must not be that of a finding
        import traceback

        traceback.print_exc()
        print("ddpdoctor: error: this is a bug of ddpdoctor, not of your script or machine", file=sys.stderr)
        status = 2
    sys.exit(status)


if __name__ == "__main__":
    main()
