"""A part with several members of an array, as its launcher reads it: one report for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from coalloc.adapters.part_folder import PartFolder, ended_report
from coalloc.adapters.runner.status import END, PAGE, decoded, member_end
from coalloc.model.sites.parts import NOT_BEGUN, PartKey, PartReport, PartState
from coalloc.model.values import replace


class Pack:
    """The members of one part, in their order."""

    def __init__(self, folder: PartFolder) -> None:
        self._folder, self.keys = folder, (folder.key, *folder.members)
        self.reports: dict[PartKey, PartReport] = {}
        """Of those that were not forgotten; empty before the first look."""
        self.whole: PartReport | None = None
        """The part as it was at the last look."""
        self._living = dict(enumerate(self.keys))
        """By their places."""
        self._last: float | None = None
        """When the last one has ended."""
        self._has_ends = False
        """The end of one was written: they were let go."""
        self.is_over = False
        """The runner has ended."""

    def look(self, whole: PartReport) -> None:
        """Take in what has happened, where the part as a whole is so."""
        raw, is_first, self.whole = self._folder.status(), True, whole
        over = decoded(raw[END * PAGE :]) or {} if whole.is_ended else {}
        for place, key in tuple(self._living.items()):
            end = over if over.get("place") == place else member_end(raw, place)
            if end is not None:
                report, self._has_ends = ended_report(key, end), True
                self._last = report.ended if report.started is not None else self._last
            else:
                report = self._without_end(key, whole, over, is_first=is_first)
                is_first = False
            report = replace(report, pack=self.keys[0].pack)
            if report.is_ended:
                del self._living[place]
            if report != self.reports.get(key):
                self.reports[key] = report
        self.is_over = whole.is_ended

    def _without_end(
        self, key: PartKey, whole: PartReport, over: Mapping[str, Any], *, is_first: bool
    ) -> PartReport:
        """A member of which no end is written: the first of these runs, or was the last to run."""
        told: dict[str, Any] = {"reason": whole.reason, "detail": whole.detail}
        started = whole.started if self._last is None else self._last
        if not whole.is_ended:
            started = started if is_first else None
            return replace(whole, **structs.asdict(key), started=started)
        if whole.state is PartState.REFUSED and not self._has_ends:
            return key.report(PartState.REFUSED, **told)
        # What was not written is not known to have been on its way.
        is_known = whole.reason == "runner_died" or over.get("is_sure")  # and not with the machine
        if over and (whole.state is not PartState.LOST or (is_known and not is_first)):
            return key.report(PartState.REFUSED, reason=NOT_BEGUN)
        told |= {"started": started, "ended": whole.ended} if is_first else {}
        return key.report(PartState.LOST, **told)

    def forget(self, key: PartKey) -> bool:
        """Drop a member that has ended; whether nothing is left of the part."""
        if key in self.reports and self.reports[key].is_ended:
            del self.reports[key]
        return self.is_over and not self.reports
