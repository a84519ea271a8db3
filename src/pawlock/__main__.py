"""`python -m pawlock` and the installed command `pawlock`."""

import os
import sys

_SIGINT = 2
_SIGNALS = 128
_BROKEN_PIPE = 141


def main() -> int:
    """Run the command `pawlock` with the arguments of this process.

    Returns:
        The exit code: see `pawlock run --help`; 69 when the extra `pawlock[cli]` is not installed. What Ctrl-C has ended
        does not return: it dies of the signal, so that a script around it ends as well.
    """
    try:
        code = _main()
    except KeyboardInterrupt:  # while the parts of the command were still being loaded
        from pawlock.cli.exits import ended_by

        code = ended_by(_SIGINT)
    if code > _SIGNALS:
        from pawlock.cli.exits import EndedBy, die

        return die(code) if isinstance(code, EndedBy) else code
    return code


def _main() -> int:
    if sys.argv[1:] in (["--help"], ["-h"]) and "_PAWLOCK_COMPLETE" not in os.environ:
        return _help()
    try:
        import click  # noqa: F401  # pyright: ignore[reportUnusedImport]  # only to learn whether it is there
    except ImportError:
        sys.stderr.write('pawlock: the command needs click: pip install "pawlock[cli]"\n')
        return os.EX_UNAVAILABLE if hasattr(os, "EX_UNAVAILABLE") else 69
    from pawlock.cli.main import run_command

    return run_command(sys.argv[1:])


def _help() -> int:
    from pawlock.cli.verbs import overview

    if sys.stdout is None:  # closed before we began
        return 0
    try:
        sys.stdout.write(overview())
        sys.stdout.flush()
    except OSError as error:
        from pawlock.cli.exits import Exit, drop_output, say

        drop_output()
        if isinstance(error, BrokenPipeError):
            return _BROKEN_PIPE
        say(f"system error: {error}", colour="red")
        return Exit.OUTPUT
    return 0


if __name__ == "__main__":
    sys.exit(main())
