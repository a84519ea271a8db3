"""What each runtime of several masters does in the same way: it asks all of them, and counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from pawlock.core.protocol.outcomes import Outcome
from pawlock.core.protocol.quorum import Question, spread
from pawlock.core.protocol.runtime import DEAF, Call, Fault
from pawlock.core.quorum.nodes import Incarnations
from pawlock.core.quorum.votes import MergedVotes

__all__ = ["MastersRuntime"]


class MastersRuntime(ABC):
    """A part of a runtime; see ``pawlock.core.protocol.quorum.QuorumRuntime``."""

    nodes: tuple[str, ...]
    ahead_us: float = 0.0
    ahead_at: float = 0.0
    _incarnations: Incarnations

    def remembers(self) -> bool:
        """See ``QuorumRuntime``."""
        return self._incarnations.remembers()

    @property
    def node_timeout(self) -> float:
        """See ``QuorumRuntime``."""
        return self._incarnations.timeout

    @property
    def patience(self) -> float:
        """See ``QuorumRuntime``."""
        return self._incarnations.patience

    def channel(self) -> str:
        """See ``Runtime``: nobody is woken here, since nobody queues."""
        return DEAF

    @abstractmethod
    async def ask(self, questions: Sequence[Question], timeout: float) -> None:
        """See ``QuorumRuntime``."""

    async def call(self, call: Call, timeout: float) -> Outcome:
        """See ``Runtime``: all nodes are asked; the answer is the majority's."""
        votes = MergedVotes(len(self.nodes))
        await self.ask([(spread(call, len(self.nodes)), votes)], timeout)
        return votes.outcome()

    async def call_many(self, calls: Sequence[Call], timeout: float) -> list[Outcome | Fault]:
        """See ``Runtime``."""
        count = len(self.nodes)
        questions = [(spread(call, count), MergedVotes(count)) for call in calls]
        try:
            await self.ask(questions, timeout)
        except Fault as fault:
            return [fault] * len(calls)
        return [votes.result() for _, votes in questions]
