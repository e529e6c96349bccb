"""What a workload is: who takes part, what is measured, what must hold."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench import Bench, BenchError
from contenders import Contender
from postgres import PostgresError
from redis_server import RedisError
from results import Goal, Metric, Outcome, Round, Sample


class Workload:
    """Measures its contenders one after the other in every round; a subclass may do it otherwise."""

    name: str
    title: str
    method: str
    contenders: tuple[Contender, ...]
    metrics: tuple[Metric, ...]
    goals: tuple[Goal, ...] = ()
    plotted = "rate"
    """Which metric is drawn; none if it has no such."""
    most_rounds: int | None = None
    """For one so long that it is not done as often as the others."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.failures: list[str] = []

    def measure(self, contender: Contender) -> Sample:
        """Measure one contender once."""
        raise NotImplementedError

    def round(self, contenders: Sequence[Contender]) -> Round:
        """Measure everyone once; who fails is left out of this round."""
        samples: Round = {}
        for contender in contenders:
            with self._noting_failure(contender.name):
                samples[contender.name] = self.measure(contender)
        return samples

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Hold what all rounds share."""
        yield

    def run(self, rounds: int, contenders: Sequence[Contender]) -> Outcome:
        """Run the rounds; who goes first changes from one to the next."""
        outcome = Outcome(
            name=self.name,
            title=self.title,
            method=self.method,
            metrics=self.metrics,
            goals=self.goals,
            contenders={one.name: one.described for one in contenders},
            plotted=self.plotted,
            failures=self.failures,
        )
        with self._noting_failure("preparation"), self.prepared():
            for number in range(min(rounds, self.most_rounds or rounds)):
                turn = number % len(contenders)
                with self._noting_failure(f"round {number + 1}"):
                    outcome.rounds.append(self.round([*contenders[turn:], *contenders[:turn]]))
        return outcome

    @contextmanager
    def _noting_failure(self, who: str) -> Iterator[None]:
        """Let a void measurement be noted and the benchmark go on."""
        try:
            yield
        except (BenchError, PostgresError, RedisError) as error:
            self.failures.append(f"{who}: {error}")
