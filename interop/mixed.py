"""Several kinds of clients share one counter.

``python -m interop.mixed --seconds 20 --mix pawlock,pawlock,redsync,redsync`` prints JSON and ends
with 1 if two were inside at once or an update was lost; with ``--fair`` also if somebody got less than 1 % of the
grants (3 % where its waiters are woken by a message or poll each 0.1 s or sooner) or waited for more than five seconds.
"""

from __future__ import annotations

import sys

from interop.counting import arguments, chosen, count, on_server, show

LONGEST = 5.0


def main() -> int:
    parser = arguments("Several kinds of clients share one counter.")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--ttl", type=float, default=5.0, help="seconds")
    parser.add_argument(
        "--hold", type=float, default=0.002, help="seconds between reading and writing the counter"
    )
    parser.add_argument("--fair", action="store_true", help="fail also if somebody starves")
    options = parser.parse_args()
    kinds = chosen(options.mix, options.driver)
    with on_server(options) as (url, counter_at):
        verdict = count(
            url, kinds, options.seconds, ttl=options.ttl, hold=options.hold, counter_at=counter_at
        )
    result = verdict.as_json()
    show({"mix": options.mix, "seconds": options.seconds, **result})
    fair = not result["starved"] and result["longest_wait_s"] <= LONGEST
    return 0 if verdict.safe and (fair or not options.fair) else 1


if __name__ == "__main__":
    sys.exit(main())
