"""The page of the dashboard in real Chromium: speed, accessibility, outages, hostile names.

A frame's time is what its drawing takes, as the page itself measures it: how long the machine lets
the browser wait is not the page's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coalloc.dashboard.known import Known
from coalloc.wire.answers import QueueAnswer
from coalloc.wire.job_rows import QueueRow
from tests.browser.conftest import AXE
from tests.support.dashboard_site import Served, ended_job, fill, fill_large, served, status_of

ENDED, PLANNED = 100_000, 10_000
FRAME_MS, PAINT_MS = 16.0, 300.0
FRAMES, RUNS = 120, 3
SLOWER = 3.0
"""Times that the first paint may take of that of a page without a script, on a busy machine."""
LIMIT_S = 60.0
PAGES = ("", "jobs", "job/2", "job/3", "rounds", "waits", "waits?by=project", "nodes", "node/a1")
SIZES = {"phone": (390, 844), "tablet": (820, 1180), "desktop": (1440, 900)}
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def until(holds: Callable[[], object], what: str) -> None:
    """Wait for something that the page does."""
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def show(
    driver: Any, site: Served, page: str = "", size: str = "desktop", theme: str = "light"
) -> None:
    """Open a page, and wait until it has what it asks for."""
    width, height = SIZES[size]
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == "phone"}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = [{"name": "prefers-color-scheme", "value": theme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    driver.get("about:blank")
    driver.get(f"{site.server.url}#/{page}")
    filled = "return document.querySelector('table, .grid, dd, .histograms') !== null"
    until(lambda: driver.execute_script(filled), f"page {page!r} stays empty")
    until(
        lambda: "live" in text(driver, "#health"), "the page does not hear that the daemon answers"
    )


def text(driver: Any, selector: str) -> str:
    """What an element says, as it is shown; nothing where it is not there yet."""
    found = f"return document.querySelector('{selector}')?.innerText ?? ''"
    return str(driver.execute_script(found))


def complaints(driver: Any, site: Served) -> list[str]:
    """Errors in the console that concern this site; a former one's page may have missed its end."""
    lines = [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    return [line for line in lines if site.server.url in line]


@pytest.fixture
def site() -> Iterator[Served]:
    with served() as running:
        running.change(lambda known: fill(known, now=time.time()))
        yield running


@pytest.fixture(scope="module")
def large() -> Iterator[Served]:
    with served() as running:
        running.change(
            lambda known: fill_large(known, ended=ENDED, planned=PLANNED, now=time.time())
        )
        yield running


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_no_fault_is_found_by_axe(chromium: Any, site: Served, size: str, theme: str) -> None:
    axe = AXE.read_text(encoding="utf-8")
    folder = os.environ.get("COALLOC_SCREENSHOTS")
    for page in PAGES:
        show(chromium, site, page, size, theme)
        if folder:
            name = f"{page.replace('/', '-') or 'overview'}-{size}-{theme}.png"
            chromium.save_screenshot(str(Path(folder) / name))
        # as an extension would do it: the page's own policy lets no such script in
        chromium.execute_cdp_cmd("Runtime.evaluate", {"expression": axe})
        found = chromium.execute_async_script("axe.run().then(arguments[0])")
        faults = [(f["id"], [n["html"] for n in f["nodes"]]) for f in found["violations"]]
        assert not faults, page
        wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert chromium.execute_script(wide) <= 0, f"{page} is wider than the window"
    assert not complaints(chromium, site)


def test_nothing_of_a_name_is_executed(chromium: Any) -> None:
    with served() as running:
        running.change(lambda known: fill(known, now=time.time(), name=HOSTILE))
        for page in ("", "jobs", "job/1", "job/3", f"jobs?q={HOSTILE[:4]}"):
            show(chromium, running, page)
            assert "owned" not in chromium.title
            assert not chromium.execute_script(
                "return document.querySelectorAll('main img').length"
            )
        show(chromium, running, "job/3")
        assert HOSTILE in text(chromium, "h1")
        assert not complaints(chromium, running)


def test_an_outage_is_told_and_ends(chromium: Any, site: Served) -> None:
    show(chromium, site)
    site.change(lambda known: known.unanswered("no daemon listens"))
    until(lambda: "does not answer since" in text(chromium, "#outage"), "the outage is not told")
    # unreachable is not empty
    assert "wide" in text(chromium, "main")
    assert "no answer" in text(chromium, "#health")
    now = time.time()

    def returned(known: Known) -> None:
        known.take_accounts([ended_job("2", now=now, state="completed")])
        known.take_status(status_of(now, epoch=2))

    site.change(returned)
    until(lambda: not text(chromium, "#outage"), "the end of the outage is not told")
    until(lambda: "completed" in text(chromium, ".pair"), "what happened meanwhile is not shown")


def test_the_page_finds_a_dashboard_that_was_restarted(chromium: Any, site: Served) -> None:
    show(chromium, site)
    site.server.post(lambda known: site.server.hub.close())
    until(lambda: "live" in text(chromium, "#health"), "not connected again")
    now = time.time()
    later = QueueRow(id="4", name="later", user="ann", procs=1, submitted=now)
    site.change(lambda known: known.take_queue(QueueAnswer(jobs=(*known.rows.values(), later))))
    until(lambda: "later" in text(chromium, ".pair"), "changes are not followed again")


def test_the_first_paint_is_quick_and_frames_are_short(chromium: Any, large: Served) -> None:
    bare = min(painted(chromium, f"{large.server.url}login") for _ in range(3))
    paint = min(painted(chromium, large.server.url) for _ in range(3))
    print(f"first paint {paint:.0f} ms, of a page without a script {bare:.0f} ms")
    assert paint <= (max(PAINT_MS, SLOWER * bare) if is_busy() else PAINT_MS)
    show(chromium, large)
    loaded = "return document.querySelector('#gantt').drawn?.past"
    until(lambda: chromium.execute_script(loaded) == ENDED, "the history is not all there")
    assert chromium.execute_script("return document.querySelector('#gantt').drawn.live") == PLANNED
    chromium.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    for key in ("n", "f"):
        before = script_s(chromium)
        runs = [panned(chromium, key) for _ in range(RUNS)]
        processor_ms = (script_s(chromium) - before) / sum(map(len, runs)) * 1e3
        print(f"{key}: {processor_ms:.1f} ms of the processor for a frame")
        assert processor_ms <= FRAME_MS
        # one frame in twenty may be interrupted by another process
        best = min(run[int(0.95 * len(run))] for run in runs)
        assert best <= FRAME_MS or is_busy(), runs
    assert not complaints(chromium, large)


def is_busy() -> bool:
    """More wants to run than there are processors: wall times say little of the page."""
    return os.getloadavg()[0] > (os.cpu_count() or 1)


def painted(driver: Any, url: str) -> float:
    """When a page was painted first, milliseconds."""
    driver.get("about:blank")
    driver.get(url)
    script = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    until(lambda: driver.execute_script(script), "nothing is painted")
    return float(driver.execute_script(script))


def script_s(driver: Any) -> float:
    """Processor time that the page's scripts have taken, seconds."""
    metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return float(next(m["value"] for m in metrics if m["name"] == "ScriptDuration"))


def panned(driver: Any, key: str) -> list[float]:
    """Times of the frames while the chart is dragged to and fro, milliseconds, ascending."""
    frames = sorted(driver.execute_async_script(PANNING, key, FRAMES))
    assert len(frames) >= FRAMES
    print(f"{key}: median {frames[len(frames) // 2]:.1f} ms, longest {frames[-1]:.1f} ms")
    return frames


PANNING = """
const [key, count, done] = arguments, canvas = document.querySelector('#gantt');
canvas.dispatchEvent(new KeyboardEvent('keydown', {key}));
performance.clearMeasures('gantt-frame');
let i = 0;
const point = (type, x) => canvas.dispatchEvent(new PointerEvent(
  type, {pointerId: 1, clientX: x, clientY: 400, bubbles: true, pointerType: 'mouse'}));
canvas.setPointerCapture = () => {};
point('pointerdown', 700);
const next = () => {
  if (i > count) {
    point('pointerup', 700);
    done(performance.getEntriesByName('gantt-frame').map((entry) => entry.duration));
    return;
  }
  i += 1;
  point('pointermove', 700 + 250 * Math.sin(i / 9));
  requestAnimationFrame(next);
};
requestAnimationFrame(next);
"""


def test_the_chart_is_worked_by_keys_and_by_touch(chromium: Any, site: Served) -> None:
    show(chromium, site, size="phone")
    drawn = "return document.querySelector('#gantt').drawn?.view"
    until(lambda: chromium.execute_script(drawn), "nothing is drawn")
    press = (
        "document.querySelector('#gantt')"
        ".dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0]}))"
    )

    def view() -> tuple[float, float]:
        begin, end = chromium.execute_script(drawn)
        return begin, end

    def changes(act: Callable[[], object]) -> tuple[float, float]:
        before = view()
        act()
        until(lambda: view() != before, "the view stays as it is")
        return view()

    begin, end = view()
    nearer = changes(lambda: chromium.execute_script(press, "+"))
    assert nearer[1] - nearer[0] < end - begin
    later = changes(lambda: chromium.execute_script(press, "ArrowRight"))
    assert later[0] > nearer[0]
    chromium.execute_script(press, ".")
    until(lambda: "Open job" in text(chromium, ".picked"), "no job is selected")
    pinch = changes(lambda: chromium.execute_script(PINCH))
    assert pinch[1] - pinch[0] < later[1] - later[0]
    chromium.execute_script(press, "Enter")
    until(lambda: "#/job/" in chromium.current_url, "the job is not opened")


PINCH = """
const canvas = document.querySelector('#gantt'), box = canvas.getBoundingClientRect();
canvas.setPointerCapture = () => {};
const point = (type, pointerId, x) => canvas.dispatchEvent(new PointerEvent(type, {
  pointerId, clientX: box.left + x, clientY: box.top + 80, bubbles: true, pointerType: 'touch'}));
point('pointerdown', 1, 150);
point('pointerdown', 2, 200);
point('pointermove', 2, 300);
point('pointerup', 1, 150);
point('pointerup', 2, 300);
"""


def test_a_search_dims_and_finds(chromium: Any, site: Served) -> None:
    show(chromium, site)
    chromium.execute_script(
        "const q = document.querySelector('#query'); q.value = 'wide';"
        "q.form.dispatchEvent(new SubmitEvent('submit', {cancelable: true, bubbles: true}))"
    )
    until(lambda: "1 job," in text(chromium, "caption"), "not found")
    assert "wide" in text(chromium, "tbody")
