//! One run of a benchmark: prepare, measure, judge, show and save.

use std::fmt;
use std::io::IsTerminal as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use pipewright_os::host::host_info;
use pipewright_os::process::terminal;

use crate::Error;
use crate::baseline::{self, Baselines};
use crate::cases::{capture, checked, disk, ipc, pipes, spawn};
use crate::host::{self, CpuUse, default_processors};
use crate::measure::{self, Observer, SeriesRules};
use crate::options::{
    BenchmarkOptions, CasesOptions, CasesPreset, Color, CommonBenchOptions, DiskBenchOptions,
    DiskPreset, IpcOptions, PipesOptions, PipesPreset,
};
use crate::plan::{self, PlannedChart};
use crate::progress::ProgressLine;
use crate::report::{self, BenchReport, SCHEMA, Settings, compare, warnings};
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
    files: ReportFiles,
    old: Option<BenchReport>,
}

/// Sums up the figures in sentences.
type SummaryFn = fn(&[report::Chart]) -> Option<String>;

/// The thoroughness of a preset.
struct Effort {
    series: u16,
    time: Duration,
    /// The time for cells of charts by block size, which have many cells.
    block_time: Duration,
    amount: capture::Amount,
}

impl Effort {
    fn of(preset: CasesPreset) -> Effort {
        match preset {
            CasesPreset::Quick => Effort {
                series: 3,
                time: Duration::from_millis(150),
                block_time: Duration::from_millis(50),
                amount: capture::Amount { stream_bytes: 256 << 20, children: 200 },
            },
            CasesPreset::Full => Effort {
                series: 5,
                time: Duration::from_millis(500),
                block_time: Duration::from_millis(100),
                amount: capture::Amount { stream_bytes: 1 << 30, children: 1000 },
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
        let Parts { name, preset, series, mut charts, verdict } = parts;
        choose(&mut charts, &common.only)?;
        let settings = settings(&common, series);
        let files = ReportFiles::new(&common)?;
        let old = common.compare.as_deref().map(show::load).transpose()?;
        Ok(Benchmark { name, preset, common, settings, charts, verdict, files, old })
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
        let cells = measure::cells(&self.charts);
        let mut observer = BenchmarkRun {
            progress: ProgressLine::new(cells, self.settings.series, self.common.quiet),
            is_stopped,
            files: &self.files,
            report,
            started: Instant::now(),
            series: None,
            baselines: Baselines::default(),
        };
        let rules = SeriesRules { series: self.settings.series, seed: self.settings.seed };
        let measured = measure::measure(&mut self.charts, &rules, &mut observer);
        observer.progress.end();
        let complete = measured?;
        observer.update(&self.charts);
        // Adds the medians of an interrupted series; otherwise there are none left.
        observer.baselines.end_series(&mut observer.report.machine);
        let BenchmarkRun { mut report, .. } = observer;
        report.complete = complete;
        report.machine.load_after = host_info::load();
        judge(&mut report, self.verdict, self.old.as_ref());
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

fn pipes_parts(options: &PipesOptions) -> Result<Parts, Error> {
    let (series, time) = pipes::rules(options.preset);
    let charts = pipes::charts(options, options.common.time.unwrap_or(time))?;
    let preset = options.preset.name();
    Ok(Parts { name: "pipes", preset, series, charts, verdict: pipes::verdict })
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
    Ok(Parts { name: "ipc", preset, series: effort.series, charts, verdict: ipc::verdict })
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
    Ok(Parts { name: "disk", preset, series: effort.series, charts, verdict: disk::verdict })
}

fn spawn_parts(options: &CasesOptions) -> Parts {
    let effort = Effort::of(options.preset);
    let charts = spawn::charts(options.common.time.unwrap_or(effort.time));
    let preset = options.preset.name();
    Parts { name: "spawn", preset, series: effort.series, charts, verdict: spawn::verdict }
}

fn capture_parts(options: &CasesOptions) -> Parts {
    let effort = Effort::of(options.preset);
    let time = options.common.time.unwrap_or(effort.time);
    let charts = capture::charts(effort.amount, time);
    let preset = options.preset.name();
    Parts { name: "capture", preset, series: effort.series, charts, verdict: capture::verdict }
}

fn all_parts(options: &CasesOptions) -> Result<Parts, Error> {
    let (pipes_preset, disk_preset) = match options.preset {
        CasesPreset::Quick => (PipesPreset::Quick, DiskPreset::Quick),
        CasesPreset::Full => (PipesPreset::Full, DiskPreset::Full),
    };
    let (_, time) = pipes::rules(pipes_preset);
    let sweep = PipesOptions { preset: pipes_preset, ..PipesOptions::default() };
    let mut charts = pipes::charts(&sweep, options.common.time.unwrap_or(time))?;
    let effort = Effort::of(options.preset);
    let time = options.common.time.unwrap_or(effort.block_time);
    charts.extend(ipc::charts(&ipc::LENGTHS, default_processors(), time));
    charts.extend(disk::charts(Path::new("."), &disk::DiskSweep::of(disk_preset), time));
    charts.extend(spawn_parts(options).charts);
    charts.extend(capture_parts(options).charts);
    let verdict: SummaryFn = |charts| {
        let each = [pipes::verdict, ipc::verdict, disk::verdict, spawn::verdict, capture::verdict];
        let summary: Vec<String> = each.iter().filter_map(|verdict| verdict(charts)).collect();
        (!summary.is_empty()).then(|| summary.join("\n"))
    };
    let preset = options.preset.name();
    Ok(Parts { name: "all", preset, series: effort.series, charts, verdict })
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

/// Adds the warnings, the verdict and the comparison to a report.
fn judge(report: &mut BenchReport, verdict: SummaryFn, old: Option<&BenchReport>) {
    report.warnings = warnings::warnings(report);
    report.verdict = if report.measured().next().is_none() {
        "Nothing was measured.".to_owned()
    } else if warnings::is_too_noisy(report) {
        "This machine is too noisy now for a verdict.".to_owned()
    } else {
        verdict(&report.charts).unwrap_or_default()
    };
    report.comparison = old.map(|old| compare::compare(old, report));
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
    }
}

/// Returns the given sizes, or the usual ones.
fn sizes(given: &[usize], default: &[usize]) -> Result<Vec<usize>, Error> {
    if given.is_empty() { Ok(default.to_vec()) } else { checked(given.to_vec()) }
}
