"""`python -m pawl` and the installed command `pawl`."""

import os
import sys

_SIGINT = 2
_SIGNALS = 128
_BROKEN_PIPE = 141


def main() -> int:
    """Run the command `pawl` with the arguments of this process.

    Returns:
        The exit code: see `pawl run --help`; 69 when the extra `pawlock[cli]` is not installed. What Ctrl-C has ended
        does not return: it dies of the signal, so that a script around it ends as well.
    """
    try:
        code = _main()
    except KeyboardInterrupt:  # while the parts of the command were still being loaded
        from pawl.cli.exits import ended_by

        code = ended_by(_SIGINT)
    if code > _SIGNALS:
        from pawl.cli.exits import EndedBy, die

        return die(code) if isinstance(code, EndedBy) else code
    return code


def _main() -> int:
    import pawl

    if "connect" not in getattr(
        pawl, "__all__", ()
    ):  # installed later, it has replaced the package's first file
        sys.stderr.write(
            "pawl: another distribution that is also called 'pawl' is installed over this one, 'pawlock': "
            "pip uninstall pawl pawlock; pip install pawlock\n"
        )
        return os.EX_UNAVAILABLE if hasattr(os, "EX_UNAVAILABLE") else 69
    if sys.argv[1:] in (["--help"], ["-h"]) and "_PAWL_COMPLETE" not in os.environ:
        return _help()
    try:
        import click  # noqa: F401  # pyright: ignore[reportUnusedImport]  # only to learn whether it is there
    except ImportError:
        sys.stderr.write('pawl: the command needs click: pip install "pawlock[cli]"\n')
        return os.EX_UNAVAILABLE if hasattr(os, "EX_UNAVAILABLE") else 69
    from pawl.cli.main import run_command

    return run_command(sys.argv[1:])


def _help() -> int:
    from pawl.cli.verbs import overview

    if sys.stdout is None:  # closed before we began
        return 0
    try:
        sys.stdout.write(overview())
        sys.stdout.flush()
    except OSError as error:
        from pawl.cli.exits import Exit, drop_output, say

        drop_output()
        if isinstance(error, BrokenPipeError):
            return _BROKEN_PIPE
        say(f"system error: {error}", colour="red")
        return Exit.OUTPUT
    return 0


if __name__ == "__main__":
    sys.exit(main())
