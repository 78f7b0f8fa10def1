"""A part with several members of an array, as its launcher reads it: one report for each."""

from __future__ import annotations

from pathlib import Path

from coalloc.adapters.part_folder import PartFolder, ended_report
from coalloc.adapters.runner.members import slot_of
from coalloc.model.sites.parts import NOT_BEGUN, PartKey, PartReport, PartState
from coalloc.model.values import replace

AFTER_ALL = "its turn behind another member of its array did not come"


class Pack:
    """The members of one part, in their order."""

    def __init__(self, folder: PartFolder) -> None:
        self._path: Path = folder.path / "members"
        self.keys = (folder.key, *folder.members)
        self.reports: dict[PartKey, PartReport] = {}
        """Of those that were not forgotten; empty before the first look."""
        self._open = dict(enumerate(self.keys))
        """Those that have not ended, by their places."""
        self.is_over = False
        """The runner has ended."""

    def look(self, whole: PartReport) -> None:
        """Take in what has happened, where the part as a whole is so."""
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            raw = b""
        for index, key in tuple(self._open.items()):
            begin, end = slot_of(raw, index)
            started = None if begin is None else begin["started"]
            if index == 0 and whole.started is not None:
                started = whole.started
            if end is not None:
                report = ended_report(key, end)
            elif whole.is_ended:
                report = self._at_the_end(key, whole, started)
            else:
                report = key.report(whole.state, started=started, reason=whole.reason)
            report = replace(report, pack=self.keys[0].pack)
            if report.is_ended:
                del self._open[index]
            if report != self.reports.get(key):
                self.reports[key] = report
        self.is_over = whole.is_ended

    @staticmethod
    def _at_the_end(key: PartKey, whole: PartReport, started: float | None) -> PartReport:
        """The end of a member of which the runner has written none.

        Whether a member had begun that was taken is known unless the machine was restarted.
        """
        told = {"reason": whole.reason, "detail": whole.detail}
        if whole.state is PartState.REFUSED:
            return key.report(PartState.REFUSED, **told)
        is_known = whole.state is PartState.FINISHED or whole.reason == "runner_died"
        if started is None and is_known and key.pack != whole.key.pack:
            return key.report(PartState.REFUSED, reason=NOT_BEGUN, detail=AFTER_ALL)
        return key.report(PartState.LOST, started=started, ended=whole.ended, **told)

    def forget(self, key: PartKey) -> bool:
        """Drop a member that has ended; whether nothing is left of the part."""
        report = self.reports.get(key)
        if report is not None and report.is_ended:
            del self.reports[key]
        return self.is_over and not self.reports
