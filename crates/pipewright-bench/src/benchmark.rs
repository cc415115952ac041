//! One run of a benchmark: prepare, measure, judge, show and save. Below: the parts in which benchmarks differ, and the
//! progress line.

use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant, SystemTime};

use pipewright_os::host::host_info;
use pipewright_os::process::terminal;

use crate::Error;
use crate::baseline::{self, Baselines};
use crate::cases::{capture, checked, disk, ipc, pipes, spawn};
use crate::host::{self, CpuUse, default_processors};
use crate::options::{
    BenchmarkOptions, CasesOptions, CasesPreset, Color, CommonBenchOptions, DiskBenchOptions,
    DiskPreset, IpcOptions, PipesOptions, PipesPreset,
};
use crate::plan::{self, Observer, PlannedChart, SeriesRules};
use crate::report::{self, BenchReport, SCHEMA, Section, Settings, compare, verdict};
use crate::show::{self, ReportFiles, cut};

/// A benchmark, ready to be measured.
#[derive(Debug)]
pub struct Benchmark {
    name: &'static str,
    preset: &'static str,
    common: CommonBenchOptions,
    settings: Settings,
    charts: Vec<PlannedChart>,
    verdict: SummaryFn,
    sections: Vec<PlannedSection>,
    limit: Option<Duration>,
    files: ReportFiles,
    old: Option<BenchReport>,
}

impl Benchmark {
    /// Prepares a benchmark: checks the options, reads the older report and opens the files for the reports.
    ///
    /// # Errors
    ///
    /// Options that cannot be used on this machine, and files that cannot be read or written.
    pub fn new(options: BenchmarkOptions) -> Result<Benchmark, Error> {
        match options {
            BenchmarkOptions::Pipes(options) => {
                let parts = pipes_parts(&options)?;
                let mut made = Benchmark::of(parts, options.common)?;
                (made.settings.count, made.settings.verify) = (options.count, options.verify);
                Ok(made)
            }
            BenchmarkOptions::Ipc(options) => Benchmark::of(ipc_parts(&options)?, options.common),
            BenchmarkOptions::Disk(options) => Benchmark::of(disk_parts(&options)?, options.common),
            BenchmarkOptions::Spawn(options) => {
                Benchmark::of(spawn_parts(&options), options.common)
            }
            BenchmarkOptions::Capture(options) => {
                Benchmark::of(capture_parts(&options), options.common)
            }
            BenchmarkOptions::All(options) => Benchmark::of(all_parts(&options)?, options.common),
        }
    }

    fn of(parts: Parts, common: CommonBenchOptions) -> Result<Benchmark, Error> {
        let Parts { name, preset, series, mut charts, verdict, sections, limit } = parts;
        let whole = plan::time(&charts);
        choose(&mut charts, &common.only)?;
        let is_preset = common.series.is_none() && common.time.is_none();
        let limit =
            limit.filter(|_| is_preset).map(|limit| share(limit, plan::time(&charts), whole));
        let mut settings = settings_of(&common, series);
        settings.time_limit_seconds = limit.map(|limit| limit.as_secs_f64());
        let files = ReportFiles::new(&common)?;
        let old = common.compare.as_deref().map(show::load).transpose()?;
        Ok(Benchmark {
            name,
            preset,
            common,
            settings,
            charts,
            verdict,
            sections,
            limit,
            files,
            old,
        })
    }

    /// Returns the longest time that [`run`](Benchmark::run) takes on a machine that is not too slow to measure every
    /// cell once in it. `None`: as long as it takes, because the options say how much to measure.
    ///
    /// Cells are measured for less time if those before took longer than planned; if that is not enough, there are
    /// fewer series. The report says both.
    #[must_use]
    pub fn time_limit(&self) -> Option<Duration> {
        self.limit
    }

    /// Returns true if the options ask for no progress.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.common.quiet
    }

    /// Measures, until it is done or `is_stopped` returns true. Shows the progress on stderr if that is a terminal, and
    /// saves the files after each series.
    ///
    /// A stopped benchmark finishes its current cell, and returns what it has measured.
    ///
    /// # Errors
    ///
    /// Received data that differ from the sent data.
    pub fn run(mut self, is_stopped: &dyn Fn() -> bool) -> Result<Results, Error> {
        let report = self.empty_report();
        let cells = plan::cells(&self.charts);
        let mut observer = BenchmarkRun {
            progress: ProgressLine::new(cells, self.settings.series, self.common.quiet),
            is_stopped,
            files: &self.files,
            report,
            started: Instant::now(),
            series: None,
            baselines: Baselines::default(),
        };
        let rules = SeriesRules {
            series: self.settings.series,
            seed: self.settings.seed,
            limit: self.limit,
        };
        let measured = plan::measure(&mut self.charts, &rules, &mut observer);
        observer.progress.end();
        let extent = measured?;
        observer.update(&self.charts);
        // Adds the medians of an interrupted series; otherwise there are none left.
        observer.baselines.end_series(&mut observer.report.machine);
        let BenchmarkRun { mut report, .. } = observer;
        report.complete = extent.complete;
        report.settings.measured_series = Some(extent.series);
        report.settings.shortest_share = extent.shortest_share;
        report.machine.load_after = host_info::load();
        judge(&mut report, self.verdict, &self.sections, self.old.as_ref());
        Ok(Results { report, files: self.files, color: self.common.color })
    }

    fn empty_report(&self) -> BenchReport {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let mut machine = host::look();
        machine.bare_start_program = Some(baseline::bare_program().to_owned());
        BenchReport {
            schema: SCHEMA.to_owned(),
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            benchmark: self.name.to_owned(),
            preset: self.preset.to_owned(),
            complete: false,
            started_unix_seconds: now.map_or(0, |now| now.as_secs()),
            elapsed_seconds: 0.0,
            settings: self.settings.clone(),
            machine,
            verdict: String::new(),
            warnings: Vec::new(),
            charts: Vec::new(),
            sections: Vec::new(),
            comparison: None,
        }
    }
}

/// The results of a benchmark.
///
/// Print [`text`](Results::text) first and [`save`](Results::save) then: a full disk must not hide what was measured.
pub struct Results {
    report: BenchReport,
    files: ReportFiles,
    color: Color,
}

impl fmt::Debug for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Results").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Results {
    /// Returns the text for stdout: the file that goes there, otherwise the report for the terminal.
    ///
    /// # Errors
    ///
    /// A report that cannot be written as JSON.
    pub fn text(&self) -> Result<String, Error> {
        const USUAL_COLUMNS: usize = 80;
        if let Some(text) = self.files.stdout(&self.report)? {
            return Ok(text);
        }
        let colors = match self.color {
            Color::Always => true,
            Color::Never => false,
            // Set and not empty (no-color.org).
            Color::Auto => {
                std::io::stdout().is_terminal()
                    && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty())
            }
        };
        let columns = terminal::columns().unwrap_or(USUAL_COLUMNS);
        Ok(show::terminal(&self.report, columns, colors))
    }

    /// Writes the files.
    ///
    /// # Errors
    ///
    /// The first file that cannot be written.
    pub fn save(&self) -> Result<(), Error> {
        self.files.save(&self.report)
    }

    /// Returns an error if no cell was measured.
    ///
    /// # Errors
    ///
    /// [`Error::NothingMeasured`], with the reason of the first cell.
    pub fn check(&self) -> Result<(), Error> {
        match self.report.reason_for_nothing() {
            Some(reason) => Err(Error::NothingMeasured(reason.to_owned())),
            None => Ok(()),
        }
    }
}

/// Adds the warnings, the verdicts and the comparison to a report.
fn judge(
    report: &mut BenchReport,
    verdict: SummaryFn,
    sections: &[PlannedSection],
    old: Option<&BenchReport>,
) {
    report.warnings = report::warnings(report);
    verdict::judge(&mut report.charts);
    let section = |planned: &PlannedSection| {
        let mut part = report.clone();
        part.charts.retain(|chart| planned.charts.contains(&chart.id));
        let ids: Vec<String> = part.charts.iter().map(|chart| chart.id.clone()).collect();
        let verdict = verdict_of(&part, planned.verdict);
        (!ids.is_empty()).then(|| Section { name: planned.name.to_owned(), verdict, charts: ids })
    };
    let sections: Vec<Section> = sections.iter().filter_map(section).collect();
    report.verdict = match sections.is_empty() {
        true => verdict_of(report, verdict),
        // A section that is too noisy takes no verdict from the others.
        false => {
            let lines = sections.iter().filter(|section| !section.verdict.is_empty());
            lines.map(|section| section.verdict.as_str()).collect::<Vec<_>>().join("\n")
        }
    };
    report.sections = sections;
    report.comparison = old.map(|old| compare::compare(old, report));
}

fn verdict_of(report: &BenchReport, verdict: SummaryFn) -> String {
    if report.measured().next().is_none() {
        "Nothing was measured.".to_owned()
    } else if report::is_too_noisy(report) {
        sure_verdict(report)
    } else {
        verdict(&report.charts).unwrap_or_default()
    }
}

/// Returns the verdict on a machine that is too noisy for others: the charts whose ranges are apart.
fn sure_verdict(report: &BenchReport) -> String {
    let of_chart = |chart: &report::Chart| {
        let found = verdict::of_chart(chart).ok()?;
        Some(format!("{}: {found}.", chart.title))
    };
    let sure: Vec<String> = report.charts.iter().filter_map(of_chart).collect();
    match sure.is_empty() {
        true => "This machine is too noisy now for a verdict.".to_owned(),
        false => {
            format!("This machine is noisy now, but some ranges are apart.\n{}", sure.join("\n"))
        }
    }
}

/// Returns the time for some of the charts, of that for all of them.
fn share(limit: Duration, chosen: Duration, all: Duration) -> Duration {
    const SHORTEST: Duration = Duration::from_secs(5);
    let share = chosen.as_secs_f64() / all.as_secs_f64().max(f64::MIN_POSITIVE);
    limit.mul_f64(share.min(1.0)).max(SHORTEST).min(limit)
}

/// A run in progress: shows how far it is, and keeps the report up to date.
struct BenchmarkRun<'a> {
    progress: ProgressLine,
    is_stopped: &'a dyn Fn() -> bool,
    files: &'a ReportFiles,
    report: BenchReport,
    started: Instant,
    /// The CPU time at the start of the series.
    series: Option<CpuUse>,
    baselines: Baselines,
}

impl BenchmarkRun<'_> {
    fn update(&mut self, charts: &[PlannedChart]) {
        self.report.elapsed_seconds = self.started.elapsed().as_secs_f64();
        self.report.charts = plan::report(charts);
    }
}

impl Observer for BenchmarkRun<'_> {
    fn series(&mut self, number: usize) {
        self.progress.series(number);
        self.series = CpuUse::start();
    }

    fn cell(&mut self, name: &str) {
        self.progress.cell(name);
        self.baselines.measure();
    }

    fn after_series(&mut self, charts: &[PlannedChart]) {
        self.update(charts);
        self.baselines.end_series(&mut self.report.machine);
        let share = self.series.and_then(|series| series.others_share());
        self.report.machine.others_share.extend(share);
        // Ignored: the last save reports the error if it is still there.
        let _ = self.files.save(&self.report);
    }

    fn is_stopped(&self) -> bool {
        (self.is_stopped)()
    }
}

/// Returns the settings: the given ones, or those of the preset.
fn settings_of(options: &CommonBenchOptions, series: u16) -> Settings {
    let from_clock = || {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        // Short enough to be typed again.
        now.map_or(1, |now| u64::from(now.subsec_micros()))
    };
    Settings {
        series: usize::from(options.series.unwrap_or(series)),
        count: None,
        seed: options.seed.unwrap_or_else(from_clock),
        verify: false,
        time_limit_seconds: None,
        measured_series: None,
        shortest_share: 1.0,
    }
}

// The parts in which benchmarks differ: charts, series, verdicts and limits.

/// Sums up the figures in sentences.
type SummaryFn = fn(&[report::Chart]) -> Option<String>;

/// The thoroughness of a preset.
struct Effort {
    series: u16,
    time: Duration,
    /// The time for cells of charts by block size, which have many cells.
    block_time: Duration,
    amount: capture::Amount,
    /// The time for one benchmark.
    limit: Duration,
    /// The time for all benchmarks together.
    limit_of_all: Duration,
}

impl Effort {
    fn of(preset: CasesPreset) -> Effort {
        match preset {
            CasesPreset::Quick => Effort {
                series: 3,
                time: Duration::from_millis(150),
                block_time: Duration::from_millis(50),
                amount: capture::Amount { stream_bytes: 256 << 20, children: 200 },
                limit: Duration::from_secs(30),
                limit_of_all: Duration::from_secs(120),
            },
            CasesPreset::Full => Effort {
                series: 5,
                time: Duration::from_millis(500),
                block_time: Duration::from_millis(100),
                amount: capture::Amount { stream_bytes: 1 << 30, children: 1000 },
                limit: Duration::from_secs(120),
                limit_of_all: Duration::from_secs(900),
            },
        }
    }
}

/// The parts of a benchmark that depend on what is measured.
struct Parts {
    name: &'static str,
    preset: &'static str,
    series: u16,
    charts: Vec<PlannedChart>,
    verdict: SummaryFn,
    /// The benchmarks that it consists of; none, if it is one.
    sections: Vec<PlannedSection>,
    /// The time for all charts; `None`: as long as it takes, because the options say what to measure.
    limit: Option<Duration>,
}

/// A benchmark as a part of another one.
#[derive(Debug)]
struct PlannedSection {
    name: &'static str,
    verdict: SummaryFn,
    /// The ids of its charts.
    charts: Vec<String>,
}

fn pipes_parts(options: &PipesOptions) -> Result<Parts, Error> {
    let (series, time) = pipes::rules(options.preset);
    let charts = pipes::charts(options, options.common.time.unwrap_or(time))?;
    let preset = options.preset.name();
    let is_preset =
        options.blocks.is_empty() && options.count.is_none() && !pipes::is_chosen(options);
    Ok(Parts {
        name: "pipes",
        preset,
        series,
        charts,
        verdict: pipes::verdict,
        sections: Vec::new(),
        limit: is_preset.then(|| pipes::limit(options.preset)),
    })
}

fn ipc_parts(options: &IpcOptions) -> Result<Parts, Error> {
    let effort = Effort::of(options.preset);
    let lengths = sizes(&options.blocks, &ipc::LENGTHS)?;
    let pair = match options.pin {
        Some(placement) => pipes::pinned(placement)?,
        None => default_processors(),
    };
    let time = options.common.time.unwrap_or(effort.block_time);
    let charts = ipc::charts(&lengths, pair, time);
    let preset = options.preset.name();
    Ok(Parts {
        name: "ipc",
        preset,
        series: effort.series,
        charts,
        verdict: ipc::verdict,
        sections: Vec::new(),
        limit: options.blocks.is_empty().then_some(effort.limit),
    })
}

fn disk_parts(options: &DiskBenchOptions) -> Result<Parts, Error> {
    let effort = Effort::of(match options.preset {
        DiskPreset::Quick | DiskPreset::Ibm2001 => CasesPreset::Quick,
        DiskPreset::Full => CasesPreset::Full,
    });
    let mut sweep = disk::DiskSweep::of(options.preset);
    sweep.blocks = sizes(&options.blocks, &sweep.blocks)?;
    if let Some(most) = options.depth.iter().max() {
        sweep.depth = usize::from(*most);
        sweep.depths = options.depth.iter().copied().map(usize::from).collect();
    }
    sweep.file_bytes = options.file_bytes.unwrap_or(sweep.file_bytes);
    let time = options.common.time.unwrap_or(effort.block_time);
    let charts = disk::charts(&options.folder, &sweep, time);
    let preset = options.preset.name();
    let is_preset =
        options.blocks.is_empty() && options.depth.is_empty() && options.file_bytes.is_none();
    Ok(Parts {
        name: "disk",
        preset,
        series: effort.series,
        charts,
        verdict: disk::verdict,
        sections: Vec::new(),
        limit: is_preset.then(|| disk::limit(options.preset)),
    })
}

fn spawn_parts(options: &CasesOptions) -> Parts {
    let effort = Effort::of(options.preset);
    let charts = spawn::charts(options.common.time.unwrap_or(effort.time));
    let preset = options.preset.name();
    Parts {
        name: "spawn",
        preset,
        series: effort.series,
        charts,
        verdict: spawn::verdict,
        sections: Vec::new(),
        limit: Some(effort.limit),
    }
}

fn capture_parts(options: &CasesOptions) -> Parts {
    let effort = Effort::of(options.preset);
    let time = options.common.time.unwrap_or(effort.time);
    let charts = capture::charts(effort.amount, time);
    let preset = options.preset.name();
    Parts {
        name: "capture",
        preset,
        series: effort.series,
        charts,
        verdict: capture::verdict,
        sections: Vec::new(),
        limit: Some(effort.limit),
    }
}

fn all_parts(options: &CasesOptions) -> Result<Parts, Error> {
    let (pipes_preset, disk_preset) = match options.preset {
        CasesPreset::Quick => (PipesPreset::Quick, DiskPreset::Quick),
        CasesPreset::Full => (PipesPreset::Full, DiskPreset::Full),
    };
    let common = CommonBenchOptions { time: options.common.time, ..CommonBenchOptions::default() };
    let pipes =
        PipesOptions { preset: pipes_preset, common: common.clone(), ..PipesOptions::default() };
    let ipc =
        IpcOptions { preset: options.preset, common: common.clone(), ..IpcOptions::default() };
    let disk = DiskBenchOptions { preset: disk_preset, common, ..DiskBenchOptions::default() };
    let parts = [
        pipes_parts(&pipes)?,
        ipc_parts(&ipc)?,
        disk_parts(&disk)?,
        spawn_parts(options),
        capture_parts(options),
    ];
    let (mut charts, mut sections) = (Vec::new(), Vec::new());
    for part in parts {
        let ids = part.charts.iter().map(|chart| chart.id.clone()).collect();
        sections.push(PlannedSection { name: part.name, verdict: part.verdict, charts: ids });
        charts.extend(part.charts);
    }
    let Effort { series, limit_of_all: limit, .. } = Effort::of(options.preset);
    let preset = options.preset.name();
    // The sections have theirs.
    let verdict: SummaryFn = |_| None;
    Ok(Parts { name: "all", preset, series, charts, verdict, sections, limit: Some(limit) })
}

/// Keeps only the charts with these ids; all, if there is none.
fn choose(charts: &mut Vec<PlannedChart>, only: &[String]) -> Result<(), Error> {
    let known: Vec<&str> = charts.iter().map(|chart| chart.id.as_str()).collect();
    if let Some(unknown) = only.iter().find(|name| !known.contains(&name.as_str())) {
        let known = known.join(", ");
        let problem = format!("there is no chart \"{unknown}\"; the charts are {known}");
        return Err(Error::Option { option: "--only".to_owned(), problem });
    }
    charts.retain(|chart| only.is_empty() || only.contains(&chart.id));
    Ok(())
}

/// Returns the given sizes, or the usual ones.
fn sizes(given: &[usize], default: &[usize]) -> Result<Vec<usize>, Error> {
    if given.is_empty() { Ok(default.to_vec()) } else { checked(given.to_vec()) }
}

// The progress line.

/// The longest line.
const MOST_COLUMNS: usize = 78;

/// The shortest time between two drawings.
const PAUSE: Duration = Duration::from_millis(100);

/// The progress line on stderr, if that is a terminal.
///
/// It is drawn between two cells, never during a measurement. The documentation of the crate says why this is not
/// `indicatif`.
#[derive(Debug)]
pub(crate) struct ProgressLine {
    cells: usize,
    all_series: usize,
    done: usize,
    series: usize,
    started: Instant,
    drawn: Option<Instant>,
    is_shown: bool,
}

impl ProgressLine {
    pub(crate) fn new(cells: usize, all_series: usize, hidden: bool) -> ProgressLine {
        ProgressLine {
            cells,
            all_series,
            done: 0,
            series: 0,
            started: Instant::now(),
            drawn: None,
            is_shown: !hidden && io::stderr().is_terminal(),
        }
    }

    pub(crate) fn series(&mut self, number: usize) {
        self.series = number + 1;
    }

    /// Called before each cell.
    pub(crate) fn cell(&mut self, name: &str) {
        let now = Instant::now();
        if self.is_shown && self.drawn.is_none_or(|drawn| now - drawn >= PAUSE) {
            self.drawn = Some(now);
            let columns = columns();
            let line = self.line(name, now - self.started, columns);
            // Ignored: the benchmark goes on without a terminal.
            let _ = write!(io::stderr().lock(), "\r{line:<columns$}");
        }
        self.done += 1;
    }

    /// Erases the line.
    pub(crate) fn end(&self) {
        if self.drawn.is_some() {
            // Ignored, as above.
            let _ = write!(io::stderr().lock(), "\r{:1$}\r", "", columns());
        }
    }

    fn line(&self, name: &str, elapsed: Duration, columns: usize) -> String {
        let all = (self.cells * self.all_series).max(1);
        // The other parts take 33 characters; the name follows.
        let length = columns.saturating_sub(33).min(20);
        let full = self.done * length / all;
        let bar = format!("{}{}", "━".repeat(full), "─".repeat(length - full.min(length)));
        let percent = self.done * 100 / all;
        let left = match self.done {
            0 => String::new(),
            done => {
                let seconds = elapsed.as_secs_f64() * (all - done.min(all)) as f64 / done as f64;
                format!("{seconds:.0} s left")
            }
        };
        let (series, of) = (self.series, self.all_series);
        cut(&format!("series {series} of {of} {bar} {percent:>3} % {left:>11}  {name}"), columns)
    }
}

/// Returns the longest line that fits: a line that wraps would not be overwritten. Asked again each time, because
/// windows are resized.
fn columns() -> usize {
    terminal::stderr_columns().map_or(MOST_COLUMNS, |columns| (columns - 1).min(MOST_COLUMNS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Cell;
    use crate::sample;

    #[test]
    fn a_noisy_machine_has_verdicts_on_charts_whose_ranges_are_apart() {
        let noisy = |figures: [f64; 3]| {
            let mut report = sample::spawn();
            for (cell, figure) in report.charts[0].curves[0].cells.iter_mut().zip(figures) {
                let samples = [0.6, 1.0, 1.4].map(|factor| factor * figure).to_vec();
                *cell = Cell::new(&cell.label, None, samples);
            }
            judge(&mut report, |_| Some("Quiet.".to_owned()), &[], None);
            assert!(report::is_too_noisy(&report));
            report
        };
        let apart = noisy([1.0, 4.0, 9.0]);
        let lines: Vec<&str> = apart.verdict.lines().collect();
        assert_eq!(lines[0], "This machine is noisy now, but some ranges are apart.");
        let (title, found) = lines[1].split_once(": ").unwrap();
        assert_eq!(title, apart.charts[0].title);
        let expected =
            "no option (1.00 s) is the fastest: 4.00 times as fast as a group of its own (4.00 s).";
        assert_eq!(found, expected);
        assert_eq!(apart.charts[0].verdict, format!("N{}", &expected[1..]));
        let overlap = noisy([1.0, 1.1, 1.2]);
        assert_eq!(overlap.verdict, "This machine is too noisy now for a verdict.");
        assert_eq!(overlap.charts[0].verdict, "No verdict: the ranges overlap.");
        let mut quiet = sample::spawn();
        judge(&mut quiet, |_| Some("Quiet.".to_owned()), &[], None);
        assert_eq!(quiet.verdict, "Quiet.");
    }

    #[test]
    fn the_line_shows_the_progress_and_the_remaining_time() {
        let mut progress = ProgressLine::new(10, 3, true);
        progress.series(0);
        let second = Duration::from_secs(1);
        assert_eq!(
            progress.line("x", second, 78),
            "series 1 of 3 ────────────────────   0 %              x"
        );
        (0..15).for_each(|_| progress.cell("x"));
        progress.series(1);
        assert_eq!(
            progress.line("two threads, 4 KiB", 6 * second, 78),
            "series 2 of 3 ━━━━━━━━━━──────────  50 %    6 s left  two threads, 4 KiB",
        );
        assert_eq!(
            progress.line("two threads, 4 KiB", 6 * second, 40),
            "series 2 of 3 ━━━────  50 %    6 s left…",
        );
        for columns in [0, 1, 39, 78] {
            let long = progress.line(&"x".repeat(100), second, columns);
            assert!(long.chars().count() <= columns, "{long:?}");
        }
        assert_eq!(ProgressLine::new(0, 1, true).line("", second, 78).chars().count(), 54);
    }
}
