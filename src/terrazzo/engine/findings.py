"""What a check finds, for people and for programs."""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from terrazzo.errors import InvalidRequestError, TerrazzoError, UnsupportedFeatureError


class Severity(StrEnum):
    ERROR = "error"  # something cannot be read, or reads wrong
    WARNING = "warning"  # readers disagree, or an operation was left unfinished
    NOTE = "note"  # nothing to worry about


_RANK = {severity: rank for rank, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True)
class Finding:
    severity: Severity
    key: str  # of the object, relative to the array
    problem: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.severity}: {self.key}: {self.problem}" + (f"; {self.advice}" if self.advice else "")

    @classmethod
    def of(cls, key: str, problem: TerrazzoError, advice: str) -> "Finding":
        """An error with an object, told without repeating its place."""
        told = str(problem.args[0]).splitlines()[0] if problem.args else str(problem)
        if problem.offset is not None:
            told += f" (at byte {problem.offset})"
        if isinstance(problem, UnsupportedFeatureError):
            advice = "a newer release may know it"
        elif isinstance(problem, InvalidRequestError):
            advice = "it was put there from another array"
        return cls(Severity.ERROR, key, told, advice)


@dataclass(frozen=True, slots=True)
class CheckReport:
    uri: str
    findings: tuple[Finding, ...]
    deep: bool
    n_fragments: int
    n_cells: int  # that were looked at, in a deep check

    @property
    def ok(self) -> bool:
        """Whether there is no error; warnings and notes may be there."""
        return not any(finding.severity is Severity.ERROR for finding in self.findings)

    def of(self, severity: Severity | str) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == severity)

    def __str__(self) -> str:
        looked = f"{self.n_fragments} fragments" + (f", {self.n_cells:,} cells" if self.deep else "")
        counts = Counter(finding.severity for finding in self.findings)
        told = ", ".join(f"{counts[s]} {s}{'s' if counts[s] > 1 else ''}" for s in Severity if counts[s])
        return "\n".join([f"{self.uri}: {looked}: {told or 'nothing to report'}", *map(str, self.findings)])


def in_order(findings: list[Finding]) -> tuple[Finding, ...]:
    """The worst first."""
    return tuple(sorted(dict.fromkeys(findings), key=lambda f: (_RANK[f.severity], f.key, f.problem)))
