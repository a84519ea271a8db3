"""Reads the facts of servers for `client.check()`: one plain connection to each, and changes nothing.

A server may refuse any of these commands: the fact is then unknown.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from dataclasses import replace
from importlib.resources import files
from typing import Any, TypeGuard

from pawlock._factory import Settings
from pawlock._system import now, sleep, wall
from pawlock._target import shown_of
from pawlock.core.names import wake_prefix
from pawlock.core.runtime import Fault, run
from pawlock.errors import ConfigurationError
from pawlock.model import Finding, ServerReport, Severity
from pawlock.preflight.group import check_masters, check_sentinels
from pawlock.preflight.server import Facts, check_server, facts_of_info, fields_of
from pawlock.topology.endpoint import ClusterNodes, Endpoint, Masters, Place, Sentinels, Target
from pawlock.topology.redlock import quorum_warning
from pawlock.topology.sentinel import read_view
from pawlock.transport.conn import ReplyError
from pawlock.transport.connect import fault_of, is_own
from pawlock.transport.link import Link, ask_sync

__all__ = ["acl_rules", "examine", "needed_commands"]

_TIMEOUT = 3.0
_PINGS = 100
_SETTLE = 1.0
_SECTIONS = ("server", "replication", "memory", "persistence")


def examine(found: Target, *, ttl: float, namespace: str) -> list[ServerReport]:
    """Check every server of a target.

    Args:
        found: What ``find_target`` found.
        ttl: The ttl that leases will have, in seconds.
        namespace: What ``check_namespace`` returned: the permissions that it needs are checked.
    """
    if isinstance(found, Place):
        return found.examine() or [ServerReport(shown_of(found), ())]
    if isinstance(found, Sentinels):
        return _by_sentinels(found, ttl, namespace)
    nodes = list(found.nodes) if isinstance(found, (ClusterNodes, Masters)) else [found()]
    looks = [_look(endpoint, ttl, namespace) for endpoint in nodes]
    reports = [report for report, _ in looks]
    if isinstance(found, Masters):
        shown, facts = [report.server for report in reports], [facts for _, facts in looks]
        together = check_masters(shown, facts, quorum_warning(len(nodes)))
        reports.append(ServerReport("all of them", tuple(together)))
    return reports


def _by_sentinels(target: Sentinels, ttl: float, namespace: str) -> list[ServerReport]:
    answers = [(node.shown, *_master_by(node, target.service)) for node in target.sentinels]
    reports = [ServerReport(target.shown, tuple(check_sentinels(target.service, answers)))]
    masters = sorted({master for _, master, _ in answers if master is not None})
    for master in masters:
        host, _, port = master.rpartition(":")
        reports.append(_look(target.master.at(host.strip("[]"), int(port)), ttl, namespace)[0])
    return reports


def _master_by(sentinel: Endpoint, service: str) -> tuple[str | None, str]:
    """The master that a Sentinel reports, as host:port; or None, and why it reports none."""
    try:
        view = read_view(run(ask_sync(sentinel, ("SENTINEL", "MASTER", service), _TIMEOUT)))
    except (Fault, ValueError) as error:
        return None, str(error).removeprefix(f"{sentinel.shown}: ")
    return f"[{view.host}]:{view.port}" if ":" in view.host else f"{view.host}:{view.port}", ""


def _look(endpoint: Endpoint, ttl: float, namespace: str) -> tuple[ServerReport, Facts | None]:
    """What is found at one server, and what is known of it."""
    try:
        with contextlib.closing(Link(endpoint, None, _TIMEOUT)) as link:
            facts = replace(
                _facts(link, namespace),
                wanted=endpoint.mode,
                embedded=endpoint.shown.startswith("embedded:"),
            )
    except Exception as error:
        if not is_own(error):
            raise
        fault = error if isinstance(error, Fault) else fault_of(error, endpoint.shown)
        fix = "check the address, the network, the password, and that the server is running"
        failed = Finding("reach", Severity.ERROR, fault.text, "availability", fix)
        return ServerReport(endpoint.shown, (failed,)), None
    return ServerReport(endpoint.shown, tuple(check_server(facts, ttl=ttl))), facts


def _is_list(answer: object) -> TypeGuard[list[Any]]:
    return isinstance(answer, list)


def _is_map(answer: object) -> TypeGuard[dict[Any, Any]]:
    return isinstance(answer, dict)


def _listed(answer: object) -> list[Any]:
    return answer if _is_list(answer) else []


def _try(link: Link, *words: str) -> Any:
    """The answer, or None where the server refuses the question."""
    answer = link.command(*words, timeout=_TIMEOUT)
    return None if isinstance(answer, ReplyError) else answer


def _facts(link: Link, namespace: str) -> Facts:
    info = _info(link)
    facts = facts_of_info(info)
    fsync = _config(link, "appendfsync")
    policy = facts.policy or _config(link, "maxmemory-policy")
    offset, rate = _clock(link)
    return replace(
        facts,
        fsync=fsync,
        policy=policy,
        slots=_slots(link) if facts.mode == "cluster" else None,
        clock_offset=offset,
        clock_rate=rate,
        round_trips=_round_trips(link),
        scripts=_runs_scripts(link),
        denied=_denied(link, namespace),
        # Last: only closing the connection ends the subscription, which needs no permission.
        listens=_listens(link, wake_prefix(namespace)),
        channels=wake_prefix(namespace),
    )


def _info(link: Link) -> dict[str, str]:
    fields: dict[str, str] = {}
    for section in _SECTIONS:
        answer = _try(link, "INFO", section)
        text = answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer or "")
        fields.update(fields_of(text))
    return fields


def _slots(link: Link) -> str | None:
    answer = _try(link, "CLUSTER", "INFO")
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer or "")
    return fields_of(text).get("cluster_state")


def _config(link: Link, name: str) -> str | None:
    answer = _try(link, "CONFIG", "GET", name)
    values = list(answer.values()) if _is_map(answer) else _listed(answer)[1:]
    value: Any = values[0] if values else None
    if value is None:
        return None
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _clock(link: Link) -> tuple[float | None, float | None]:
    """How far its wall clock is from ours, and how much faster it runs than our boot clock."""
    first = _reading(link)
    if first is None:
        return None, None
    sleep(_SETTLE)
    second = _reading(link)
    if second is None:
        return first[0], None
    # Each reading is accurate to half its round trip; a difference within that is not called drift.
    passed_there = second[1] - first[1]
    passed_here = second[2] - first[2]
    unsure = (first[3] + second[3]) / 2
    rate = (passed_there - passed_here) / passed_here
    return second[0], rate if abs(passed_there - passed_here) > unsure else 0.0


def _reading(link: Link) -> tuple[float, float, float, float] | None:
    began = now()
    answer = _listed(_try(link, "TIME"))
    ended = now()
    if not answer:
        return None
    there = int(answer[0]) + int(answer[1]) / 1e6
    return there - wall() + (ended - began) / 2, there, (began + ended) / 2, ended - began


def _round_trips(link: Link) -> list[float]:
    spans: list[float] = []
    for _ in range(_PINGS):
        began = now()
        _try(link, "PING")
        spans.append(now() - began)
    return spans


def _runs_scripts(link: Link) -> bool:
    script = "return 1"
    sha = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
    return all(_try(link, *words, "0") == 1 for words in (("EVAL", script), ("EVALSHA", sha)))


def _listens(link: Link, channels: str) -> bool:
    channel = f"{channels}doctor"
    return not link.old and all(
        _try(link, *words) is not None for words in (("PUBLISH", channel, ""), ("SUBSCRIBE", channel))
    )


def _denied(link: Link, namespace: str) -> list[str] | None:
    """Commands that this user may not use; by dry run where the server has it, else not known."""
    user = _try(link, "ACL", "WHOAMI")
    if not isinstance(user, bytes):
        return None
    denied: list[str] = []
    for command, words in needed_commands(namespace).items():
        answer = _try(link, "ACL", "DRYRUN", user.decode(), command, *words)
        if answer is None:
            return None
        if answer not in (b"OK", "OK"):
            denied.append(command)
    return denied


def acl_rules(namespace: str | None = None, *, command: bool = False) -> str:
    """The rules of a user that may do what pawlock does in a namespace, and nothing else.

    Args:
        namespace: As for ``pawlock.connect``; the user is called as the keys begin.
        command: True for the command that makes the user, False for the line of an ACL file.

    Raises:
        ConfigurationError: It is ``""``: the keys are the names then, and only their users know how these begin.
    """
    space = Settings({}, namespace, may_be_async=False).namespace
    if not space:
        raise ConfigurationError(
            "without a namespace the keys are the lock names: use the rules of another namespace, and for names that "
            "begin with jobs- replace its patterns with ~jobs-* ~{jobs-* &pawlock:wake:*"
        )
    rules = files("pawlock").joinpath("pawlock.acl").read_text(encoding="ascii")
    for begin in ("user ", "~", "~{", "&"):
        # Special in the patterns of keys and channels, as in those of `re`; a user is called as the keys begin.
        new = begin + (space if begin == "user " else space.replace("\\", r"\\"))
        rules = re.sub(rf"{re.escape(begin)}pawlock(?=[ :}}])", new.replace("\\", r"\\"), rules)
    return rules.replace("user ", "ACL SETUSER ", 1) if command else rules


def needed_commands(namespace: str = "pawlock") -> dict[str, tuple[str, ...]]:
    """Each command that pawlock sends or its scripts run, with arguments for a dry run.

    Args:
        namespace: What ``check_namespace`` returned.
    """
    there = {
        _KEY: f"{namespace}:doctor" if namespace else "doctor",
        _CHANNEL: f"{wake_prefix(namespace)}doctor",
    }
    named = re.findall(r"\+([a-z]+)(?:\||\b)", acl_rules("pawlock"))
    return {
        name.upper(): tuple(there.get(word, word) for word in _SAMPLES.get(name.upper(), (_KEY,)))
        for name in named
    }


_KEY = "pawlock:doctor"
_CHANNEL = "pawlock:wake:doctor"
_SAMPLES: dict[str, tuple[str, ...]] = {
    "ASKING": (),
    "CLUSTER": ("SLOTS",),
    "DBSIZE": (),
    "ECHO": ("x",),
    "AUTH": ("user", "password"),
    "EVAL": ("return 1", "0"),
    "EVALSHA": ("0" * 40, "0"),
    "HDEL": (_KEY, "x"),
    "HELLO": (),
    "HEXISTS": (_KEY, "x"),
    "HGET": (_KEY, "x"),
    "HMGET": (_KEY, "x"),
    "HSET": (_KEY, "x", "1"),
    "HSETNX": (_KEY, "x", "1"),
    "HINCRBY": (_KEY, "x", "1"),
    "INFO": (),
    "LPUSH": (_KEY, "x"),
    "LRANGE": (_KEY, "0", "1"),
    "LTRIM": (_KEY, "0", "1"),
    "PEXPIREAT": (_KEY, "1"),
    "PUBLISH": (_CHANNEL, ""),
    "SCAN": ("0",),
    "SCRIPT": ("LOAD", "return 1"),
    "SET": (_KEY, "x"),
    "SUBSCRIBE": (_CHANNEL,),
    "TIME": (),
    "WAIT": ("0", "0"),
    "ZADD": (_KEY, "1", "x"),
    "ZCOUNT": (_KEY, "0", "1"),
    "ZRANGE": (_KEY, "0", "1"),
    "ZRANGEBYSCORE": (_KEY, "0", "1"),
    "ZRANK": (_KEY, "x"),
    "ZREM": (_KEY, "x"),
    "ZREMRANGEBYSCORE": (_KEY, "0", "1"),
    "ZSCORE": (_KEY, "x"),
}
