//! One run of a benchmark: prepare, measure, judge, show and save.

use std::fmt;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant, SystemTime};

use pipewright_os::host::host_info;
use pipewright_os::process::terminal;

use crate::Error;
use crate::baseline::{self, Baselines};
use crate::host::{self, CpuUse};
use crate::options::{BenchmarkOptions, Color, CommonBenchOptions};
use crate::parts::{
    Parts, PlannedSection, SummaryFn, all_parts, capture_parts, choose, disk_parts, ipc_parts,
    pipes_parts, spawn_parts,
};
use crate::plan::{self, Observer, PlannedChart, SeriesRules};
use crate::progress::ProgressLine;
use crate::report::{BenchReport, SCHEMA, Section, Settings, compare, warnings};
use crate::show::{self, ReportFiles};

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
        let mut settings = settings(&common, series);
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

    /// Returns the longest time that [`run`](Benchmark::run) takes on a machine that is not too slow to measure every cell
    /// once in it. `None`: as long as it takes, because the options say how much to measure.
    ///
    /// Cells are measured for less time if those before took longer than planned; if that is not enough, there are fewer series.
    /// The report says both.
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
    report.warnings = warnings::warnings(report);
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
    } else if warnings::is_too_noisy(report) {
        "This machine is too noisy now for a verdict.".to_owned()
    } else {
        verdict(&report.charts).unwrap_or_default()
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
fn settings(options: &CommonBenchOptions, series: u16) -> Settings {
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
