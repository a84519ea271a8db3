"""Draw the diagrams of the documentation: `python tools/diagrams.py` writes docs/images/diagrams/*.svg anew.

Plain SVG without scripts and fonts, for light and dark pages. A test holds the
files equal to what this writes, and sees each on a page.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "images" / "diagrams"
INK, SOFT, GOOD, BAD = "#7a8594", "#9aa5b1", "#1b9e8a", "#d9534f"
WIDTH = 720
_STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#4f5b6a}.b{font-weight:600}.s{font-size:12px}"
    "@media(prefers-color-scheme:dark){text{fill:#b9c2cd}}"
    f".g{{fill:{GOOD}}}.r{{fill:{BAD}}}"
)
_HEAD = '<path d="M0,0 L8,4 L0,8 z" fill="context-stroke"/>'


class Drawing:
    """An SVG that grows downwards.

    Attributes:
        height: How high it is.
    """

    def __init__(self, title: str, height: int) -> None:
        self.height = height
        self._title = title
        self._parts: list[str] = []

    def text(self, x: float, y: float, text: str, *, kind: str = "", anchor: str = "middle") -> None:
        """Write a line of text; ``kind`` is any of b (bold), s (small), g (good), r (bad)."""
        marked = f' class="{kind}"' if kind else ""
        self._parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{marked}>{escape(text)}</text>')

    def box(self, x: float, y: float, width: float, height: float, *lines: str, colour: str = INK) -> None:
        """A box with lines of text in its middle."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{colour}"'
            f' fill-opacity=".12" stroke="{colour}" stroke-width="1.5"/>'
        )
        first = y + height / 2 + 5 - 9 * (len(lines) - 1)
        for number, line in enumerate(lines):
            self.text(x + width / 2, first + 18 * number, line, kind="b" if number == 0 else "s")

    def line(
        self, *points: tuple[float, float], colour: str = INK, dashed: bool = False, arrow: bool = True
    ) -> None:
        """A line through points, with an arrow at its end."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        marks = ' stroke-dasharray="5 4"' if dashed else ""
        marks += ' marker-end="url(#a)"' if arrow else ""
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"{marks}/>'
        )

    def bar(self, x: float, y: float, width: float, text: str, *, colour: str = GOOD) -> None:
        """A span of time on a lane."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y - 11:g}" width="{width:g}" height="22" rx="4" fill="{colour}" fill-opacity=".3"'
            f' stroke="{colour}"/>'
        )
        self.text(x + width / 2, y + 4, text, kind="s")

    def lanes(self, names: dict[str, float], bottom: float) -> None:
        """Heads of a sequence diagram, and the life lines below them."""
        for name, x in names.items():
            self.box(x - 70, 10, 140, 34, name)
            self.line((x, 44), (x, bottom), colour=SOFT, dashed=True, arrow=False)

    def message(
        self, start: float, end: float, y: float, text: str, *, colour: str = INK, dashed: bool = False
    ) -> None:
        """A message between two life lines."""
        self.line((start, y), (end - (4 if end > start else -4), y), colour=colour, dashed=dashed)
        self.text((start + end) / 2, y - 6, text, kind="s")

    def svg(self) -> str:
        """The whole file."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" role="img">'
            f"<title>{escape(self._title)}</title><style>{_STYLE}</style>"
            '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f"{_HEAD}</marker></defs>\n" + "\n".join(self._parts) + "\n</svg>\n"
        )


def lease_life() -> Drawing:
    """The states of a lease."""
    d = Drawing("The life of a lease: waiting, held, suspect, then released or lost", 250)
    d.box(10, 90, 120, 56, "waiting", "ticket in the queue")
    d.box(230, 90, 120, 56, "held", "renewed", colour=GOOD)
    d.box(480, 90, 110, 56, "suspect", "still valid")
    d.box(230, 190, 120, 46, "released", "final")
    d.box(590, 190, 120, 46, "lost", "final, reported", colour=BAD)
    d.line((130, 118), (226, 118), colour=GOOD)
    d.text(178, 110, "grant", kind="s")
    d.line((350, 108), (476, 108))
    d.text(414, 100, "renewal fails", kind="s")
    d.line((480, 132), (354, 132), colour=GOOD)
    d.text(414, 150, "renewal succeeds", kind="s")
    d.line((290, 146), (290, 186))
    d.text(298, 170, "release()", kind="s", anchor="start")
    d.line((590, 118), (630, 118), (630, 186), colour=BAD)
    d.text(624, 160, "validity ends", kind="s", anchor="end")
    d.line((290, 90), (290, 50), (680, 50), (680, 186), colour=BAD)
    d.text(480, 42, "key gone, force release, max_hold", kind="s")
    d.line((515, 146), (515, 213), (354, 213))
    d.text(440, 206, "release()", kind="s")
    return d


def paused_holder() -> Drawing:
    """Why a lock is not enough."""
    d = Drawing("A paused holder writes late and is refused by its fencing token", 330)
    a, server, store, b = 80.0, 270.0, 450.0, 640.0
    d.lanes({"Client A": a, "Lock server": server, "Storage": store, "Client B": b}, 320)
    d.message(a, server, 78, "acquire")
    d.message(server, a, 102, "granted, fence 33", colour=GOOD)
    d.bar(30, 136, 100, "GC pause", colour=BAD)
    d.text(server, 150, "lease of A expires", kind="s r")
    d.message(b, server, 184, "acquire")
    d.message(server, b, 208, "granted, fence 34", colour=GOOD)
    d.message(b, store, 236, "write, fence 34")
    d.text(store + 8, 258, "highest: 34", kind="s", anchor="start")
    d.message(a, store, 284, "A resumes: write, fence 33", colour=BAD)
    d.message(store, a, 310, "refused: 33 < 34", colour=BAD, dashed=True)
    return d


def hand_off() -> Drawing:
    """The queue on the server and its hand-off."""
    d = Drawing("The queue and a server hand-off: one release wakes exactly the next waiter", 300)
    a, server, b, c = 80.0, 270.0, 460.0, 640.0
    d.lanes({"Holder A": a, "Server": server, "Waiter B": b, "Waiter C": c}, 290)
    d.message(b, server, 78, "acquire: ticket 1")
    d.message(c, server, 104, "acquire: ticket 2")
    d.message(a, server, 140, "release")
    d.text(server, 164, "one script: end A, grant to B", kind="s b")
    d.message(server, b, 190, "wake-up: fence 34", colour=GOOD)
    d.text(c, 194, "not woken", kind="s")
    d.message(b, server, 222, "renew: confirms the grant")
    d.bar(b - 50, 256, 100, "B holds")
    d.text(c, 260, "now first in the queue", kind="s")
    return d


def local_hand_off() -> Drawing:
    """A hand-off inside one client."""
    d = Drawing("Local hand-off: threads of one client pass a held lock on without the server", 290)
    d.box(10, 20, 440, 200, "")
    d.text(230, 44, "one client", kind="b")
    for x, name, holds in (
        (30, "thread 1", "fence 40"),
        (170, "thread 2", "fence 41"),
        (310, "thread 3", "fence 42"),
    ):
        d.box(x, 70, 110, 56, name, holds, colour=GOOD)
    d.line((140, 98), (166, 98), colour=GOOD)
    d.line((280, 98), (306, 98), colour=GOOD)
    d.text(230, 160, "no request to the server: at most `handover` grants in a row (16),", kind="s")
    d.text(230, 180, "each with its own lease, token and fencing token", kind="s")
    d.box(540, 20, 170, 200, "Server", "one key: held by the client", "queue of other clients")
    d.line((85, 70), (85, 6), (625, 6), (625, 16))
    d.line((420, 98), (490, 98), (490, 250), (625, 250), (625, 224))
    d.text(480, 268, "the last one releases: the next client in the queue is granted", kind="s")
    return d


def renewal() -> Drawing:
    """Renewal in time, and a loss."""
    d = Drawing("Renewal every third of the TTL, and the loss when renewals fail", 250)
    d.line((40, 60), (700, 60), colour=SOFT)
    d.text(14, 64, "time", kind="s", anchor="start")
    for number, x in enumerate((60, 160, 260)):
        d.line((x, 60), (x, 84), colour=GOOD)
        d.text(x, 50, "grant" if number == 0 else "renewal", kind="s g")
        d.bar(
            x,
            100 + 28 * number,
            300,
            f"valid for one TTL ({'grant' if number == 0 else f'renewal {number}'})",
        )
    for x in (360, 460):
        d.line((x, 60), (x, 84), colour=BAD)
        d.text(x, 50, "no answer", kind="s r")
    d.line((360, 172), (360, 200), colour=INK, dashed=True, arrow=False)
    d.text(366, 200, "suspect: still valid, retrying", kind="s", anchor="start")
    d.line((560, 60), (560, 220), colour=BAD, dashed=True, arrow=False)
    d.text(568, 92, "lost: on_lost is called,", kind="s r", anchor="start")
    d.text(568, 110, "asyncio body cancelled", kind="s r", anchor="start")
    d.text(566, 236, "local clock, less drift: before the server's", kind="s")
    return d


def topologies() -> Drawing:
    """The servers that a URL names."""
    d = Drawing("Topologies: a single server, Sentinel, Cluster, and Redlock", 260)
    d.text(80, 24, "Single server", kind="b")
    d.box(30, 100, 100, 44, "master", colour=GOOD)
    d.text(80, 170, "redis://", kind="s")
    d.text(250, 24, "Sentinel", kind="b")
    for number in range(3):
        d.box(175 + 52 * number, 44, 46, 30, f"S{number + 1}")
    d.box(200, 100, 100, 44, "master", colour=GOOD)
    d.box(200, 190, 100, 44, "replica")
    d.line((250, 144), (250, 186), dashed=True)
    d.text(258, 170, "async", kind="s", anchor="start")
    d.text(250, 254, "redis+sentinel://", kind="s")
    d.text(430, 24, "Cluster", kind="b")
    for number, slots in enumerate(("0 – 5460", "5461 – 10922", "10923 – 16383")):
        d.box(370, 44 + 62 * number, 120, 50, f"master {number + 1}", slots, colour=GOOD)
    d.text(430, 254, "redis+cluster://", kind="s")
    d.text(620, 24, "Redlock", kind="b")
    for number, (x, y) in enumerate(((575, 50), (575, 110), (575, 170), (655, 80), (655, 140))):
        d.box(x - 30, y, 70, 44, f"M{number + 1}", colour=GOOD)
    d.text(620, 236, "a majority grants", kind="s")
    d.text(620, 254, "redlock://", kind="s")
    return d


def redlock() -> Drawing:
    """How a majority decides."""
    d = Drawing("Redlock voting: three of five masters grant, one is slow, one is down", 300)
    d.box(10, 110, 130, 60, "Client", "asks all at once")
    rows = (
        ("M1", "granted", GOOD),
        ("M2", "granted", GOOD),
        ("M3", "granted", GOOD),
        ("M4", "slow", INK),
        ("M5", "down", BAD),
    )
    for number, (name, what, colour) in enumerate(rows):
        y = 20 + 54 * number
        d.box(300, y, 110, 42, name, what, colour=colour)
        d.line((140, 140), (296, y + 21), colour=colour, dashed=colour != GOOD)
    d.box(
        520,
        50,
        190,
        70,
        "majority: 3 of 5",
        "validity = TTL - elapsed - drift",
        "decided without M4 and M5",
        colour=GOOD,
    )
    for number in range(3):
        d.line((410, 41 + 54 * number), (516, 85), colour=GOOD)
    d.box(520, 180, 190, 70, "late grant of M4", "kept if the lease is held,", "undone if it is not")
    d.line((410, 203), (516, 215), dashed=True)
    return d


def serve() -> Drawing:
    """The lock service and its clients."""
    d = Drawing("pawlock serve: HTTP clients, instances behind a load balancer, and the lock server", 250)
    for number, name in enumerate(("curl, shell", "Go, Java, Node", "pawlock clients", "live page")):
        d.box(10, 14 + 58 * number, 140, 44, name)
        d.line((150, 36 + 58 * number), (226, 120))
    d.box(230, 90, 110, 60, "TLS proxy", "or none")
    for number in range(2):
        d.box(420, 50 + 90 * number, 130, 60, "pawlock serve", "tokens, limits, audit", colour=GOOD)
        d.line((340, 120), (416, 80 + 90 * number))
        d.line((550, 80 + 90 * number), (606, 122))
    d.box(610, 90, 100, 64, "Redis or", "Valkey")
    d.text(285, 240, "HTTP with bearer tokens", kind="s")
    d.text(704, 226, "no state in the instances:", kind="s", anchor="end")
    d.text(704, 243, "any instance serves any lease", kind="s", anchor="end")
    return d


DRAWINGS = {
    "lease-life": lease_life,
    "paused-holder": paused_holder,
    "hand-off": hand_off,
    "local-hand-off": local_hand_off,
    "renewal": renewal,
    "topologies": topologies,
    "redlock": redlock,
    "serve": serve,
}


def drawn() -> dict[str, str]:
    """Every diagram by the name of its file."""
    return {f"{name}.svg": draw().svg() for name, draw in DRAWINGS.items()}


def main() -> None:
    """Write them all."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in drawn().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
