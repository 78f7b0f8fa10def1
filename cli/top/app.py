"""The screens of ``coalloc top``; Textual draws them.

Every question to the daemon is asked in a thread, so that keys are answered while one is late.
Texts of users are shown as they are: nothing in them is markup.
"""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import DataTable, Footer, Input, Static

from coalloc.cli.jobs.job_details import job_lines as details
from coalloc.cli.jobs.queue_columns import COLUMNS, ENDED
from coalloc.cli.nodes import CLUSTER_HEADERS, cluster_line
from coalloc.cli.top.command import (
    JOB_COLUMNS,
    MOST_LINES,
    ORDERS,
    Look,
    Source,
    job_lines,
    output_path,
    tail,
)
from coalloc.client.client import NoAnswerError, RefusedError
from coalloc.runtime.texts import printable

Troubles = (NoAnswerError, RefusedError, OSError)


class Question(ModalScreen[bool]):
    """A question that is answered by y or n."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes"),
        Binding("n,escape,q", "dismiss(False)", "No"),
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        with Vertical(id="question"):
            yield Static(Text(f"{self._text}\n\ny: yes   n: no"))


class JobScreen(Screen[None]):
    """One job: everything known of it, or the end of its output."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "app.pop_screen", "Back"),
        Binding("o", "output", "Output"),
        Binding("c", "app.cancel", "Cancel"),
    ]

    def __init__(self, source: Source, job: str, every_s: float, *, output: bool = False) -> None:
        super().__init__()
        self.source, self.job, self.every_s = source, job, every_s
        self.shows_output = output

    def compose(self) -> ComposeResult:
        yield Static(id="head", markup=False)
        with VerticalScroll():
            yield Static(id="text", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        self.set_interval(self.every_s, self.refresh_text)
        self.refresh_text()

    def action_output(self) -> None:
        self.shows_output = not self.shows_output
        self.refresh_text()

    @work(thread=True, exclusive=True, group="job")
    def refresh_text(self) -> None:
        head, text, is_output = self._asked()
        self.app.call_from_thread(self._show, head, text, is_output)

    def _asked(self) -> tuple[str, str, bool]:
        try:
            job, now = self.source.job(self.job)
            if not self.shows_output:
                return f"job {self.job}", "\n".join(details(job, now)), False
            path = output_path(job)
            if path is None:
                return f"job {self.job}", "where its output lies is not known", True
            return f"job {self.job} {job.state}: the end of {path}", tail(path), True
        except Troubles as error:
            return f"job {self.job}", str(error), False

    def _show(self, head: str, text: str, is_output: bool) -> None:
        if not self.is_mounted:
            return
        self.query_one("#head", Static).update(Text(printable(head)))
        scroll = self.query_one(VerticalScroll)
        follows = is_output and scroll.scroll_offset.y >= scroll.max_scroll_y
        self.query_one("#text", Static).update(Text(text))
        if follows:
            scroll.scroll_end(animate=False)


class Top(App[None]):
    """Clusters and jobs, looked at every so many seconds."""

    TITLE = "coalloc top"
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = "data/top.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("enter", "open", "Open"),
        Binding("o", "output", "Output"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("s", "sort", "Sort"),
        Binding("a", "all", "All"),
        Binding("c", "cancel", "Cancel"),
        Binding("escape", "clear", "Clear", show=False),
    ]

    def __init__(self, source: Source, every_s: float = 2.0) -> None:
        super().__init__()
        self.source, self.every_s = source, every_s
        self.order, self.words, self.everything = "", "", False
        self.seen: Look | None = None

    def compose(self) -> ComposeResult:
        yield Static("…", id="head", markup=False)
        yield DataTable(id="clusters", cursor_type="none", zebra_stripes=False)
        yield Static(id="note", markup=False)
        yield DataTable(id="jobs", cursor_type="row", zebra_stripes=False)
        yield Input(placeholder="words that a job has: name, user, state, cluster", id="filter")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#clusters", DataTable).add_columns(*CLUSTER_HEADERS)
        jobs = self.query_one("#jobs", DataTable)
        jobs.add_columns(*(COLUMNS[name].header for name in JOB_COLUMNS))
        jobs.focus()
        self.set_interval(self.every_s, self.look)
        self.look()

    @work(thread=True, exclusive=True, group="look")
    def look(self) -> None:
        try:
            found = self.source.look(everything=self.everything)
        except Troubles as error:
            self.call_from_thread(self._head, f"NOT NOW: {error}")
        else:
            self.call_from_thread(self.show_look, found)

    def _head(self, text: str) -> None:
        self.query_one("#head", Static).update(Text(printable(text)))

    def show_look(self, found: Look) -> None:
        """Show what was seen; the line under the cursor stays under it."""
        self.seen = found
        self._head(found.headline)
        clusters = self.query_one("#clusters", DataTable)
        clusters.clear()
        for row in found.clusters:
            clusters.add_row(*(Text(printable(cell)) for cell in cluster_line(row)))
        self._show_jobs(found)

    def _show_jobs(self, found: Look) -> None:
        jobs = self.query_one("#jobs", DataTable)
        chosen, row = self.chosen(), jobs.cursor_row
        lines, count = job_lines(found, self.order, self.words)
        jobs.clear()
        for job, cells in lines:
            jobs.add_row(*map(Text, cells), key=job)
        ids = [job for job, _ in lines]
        if ids:
            at = ids.index(chosen) if chosen in ids else min(row, len(ids) - 1)
            jobs.move_cursor(row=at)
        parts = [f"{count} jobs" + (f", the first {MOST_LINES}" if count > MOST_LINES else "")]
        parts.append(f"by {self.order.lstrip('-')}" if self.order else "by arrival")
        parts += [f"with {self.words!r}"] if self.words else []
        parts += ["those that have ended too"] if self.everything else []
        self.query_one("#note", Static).update(Text(printable(", ".join(parts))))

    def chosen(self) -> str:
        """The job under the cursor; empty: there is none."""
        jobs = self.query_one("#jobs", DataTable)
        if not jobs.row_count or not jobs.is_valid_row_index(jobs.cursor_row):
            return ""
        key = jobs.coordinate_to_cell_key(jobs.cursor_coordinate).row_key
        return str(key.value)

    def _again(self) -> None:
        if self.seen is not None:
            self._show_jobs(self.seen)

    def action_sort(self) -> None:
        self.order = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]
        self._again()

    def action_all(self) -> None:
        self.everything = not self.everything
        self.look()

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.add_class("shown")
        field.focus()

    @on(Input.Changed)
    def _filter_changed(self, event: Input.Changed) -> None:
        self.words = event.value
        self._again()

    @on(Input.Submitted)
    def _filter_done(self) -> None:
        self.query_one("#filter", Input).remove_class("shown")
        self.query_one("#jobs", DataTable).focus()

    def action_clear(self) -> None:
        field = self.query_one("#filter", Input)
        field.value = ""
        self._filter_done()

    @on(DataTable.RowSelected)
    def _selected(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        if job := self.chosen():
            self.push_screen(JobScreen(self.source, job, self.every_s))

    def action_output(self) -> None:
        if job := self.chosen():
            self.push_screen(JobScreen(self.source, job, self.every_s, output=True))

    def action_cancel(self) -> None:
        screen = self.screen
        job = screen.job if isinstance(screen, JobScreen) else self.chosen()
        row = next((r for r in self.seen.jobs if r.id == job), None) if self.seen else None
        if not job or (row is not None and row.state in ENDED):
            return
        name = "" if row is None else f" ({printable(row.name)}) of {row.user}, {row.state}"

        def answered(is_sure: bool | None) -> None:
            if is_sure:
                self.end(job)

        self.push_screen(Question(f"Cancel job {job}{name}?"), answered)

    @work(thread=True)
    def end(self, job: str) -> None:
        try:
            self.source.cancel(job)
        except Troubles as error:
            self.call_from_thread(
                self.notify, printable(str(error)), severity="error", markup=False
            )
        else:
            self.call_from_thread(self.notify, f"job {job} is being ended", markup=False)
        self.call_from_thread(self.look)
