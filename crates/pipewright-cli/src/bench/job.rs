//! One run of the command: look, measure, judge, save, show.

use std::io::IsTerminal as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use pipewright_os::host::host_info::CpuTime;
use pipewright_os::{host::host_info as os_machine, process::terminal};

use super::capture::{self, Amount};
use super::measure::{self, Rules, Watch};
use super::plan::{self, Chart};
use super::progress::Progress;
use super::report::{self, Report, SCHEMA, Settings};
use super::save::{self, Files};
use super::stop::Stop;
use super::yardstick::Yardsticks;
use super::{advice, compare, disk, ipc, machine, pipes, show, spawn};
use crate::args::{
    BenchDiskOptions, CasesOptions, CasesPreset, Color, DiskPreset, IpcOptions, MeasureOptions,
    PipesOptions, PipesPreset, SweepOptions,
};
use crate::{Failure, exit_code};

/// What is to be measured, and how.
#[derive(Debug)]
pub(super) struct Job<'a> {
    benchmark: &'static str,
    preset: String,
    options: &'a MeasureOptions,
    settings: Settings,
    charts: Vec<Chart>,
    verdict: Verdict,
}

/// Says in a sentence what the figures mean.
type Verdict = fn(&[report::Chart]) -> Option<String>;

/// How thoroughly cases are measured.
struct Size {
    series: u16,
    time: Duration,
    /// For cells of which there are many: those over the size of a block.
    block_time: Duration,
    amount: Amount,
}

impl Size {
    fn of(preset: CasesPreset) -> Size {
        match preset {
            CasesPreset::Quick => Size {
                series: 3,
                time: Duration::from_millis(150),
                block_time: Duration::from_millis(50),
                amount: Amount { stream_bytes: 256 << 20, children: 200 },
            },
            CasesPreset::Full => Size {
                series: 5,
                time: Duration::from_millis(500),
                block_time: Duration::from_millis(100),
                amount: Amount { stream_bytes: 1 << 30, children: 1000 },
            },
        }
    }
}

impl<'a> Job<'a> {
    /// `bench pipes`.
    pub(super) fn pipes(options: &'a PipesOptions) -> Result<Job<'a>, Failure> {
        let PipesOptions { sweep, measure } = options;
        let (series, time) = pipes::rules(sweep.preset);
        let charts = pipes::charts(sweep, time_of(measure, time))?;
        let preset = name(sweep.preset);
        let mut job = Job::new("pipes", preset, measure, series, charts, pipes::verdict);
        (job.settings.count, job.settings.verify) = (sweep.count, sweep.verify);
        Ok(job)
    }

    /// `bench spawn`.
    pub(super) fn spawn(options: &'a CasesOptions) -> Job<'a> {
        let charts = spawn::charts(time_of(&options.measure, Size::of(options.preset).time));
        Job::of_cases("spawn", options, charts, spawn::verdict)
    }

    /// `bench capture`.
    pub(super) fn capture(options: &'a CasesOptions) -> Job<'a> {
        let size = Size::of(options.preset);
        let charts = capture::charts(size.amount, time_of(&options.measure, size.time));
        Job::of_cases("capture", options, charts, capture::verdict)
    }

    /// `bench ipc`.
    pub(super) fn ipc(options: &'a IpcOptions) -> Result<Job<'a>, Failure> {
        let size = Size::of(options.preset);
        let lengths = lengths(&options.blocks, || ipc::LENGTHS.to_vec())?;
        let place = match options.pin {
            Some(placement) => pipes::place(placement)?,
            None => pipes::usual_place(),
        };
        let charts = ipc::charts(&lengths, place, time_of(&options.measure, size.block_time));
        let preset = name(options.preset);
        Ok(Job::new("ipc", preset, &options.measure, size.series, charts, ipc::verdict))
    }

    /// `bench disk`.
    pub(super) fn disk(options: &'a BenchDiskOptions) -> Result<Job<'a>, Failure> {
        let size = Size::of(match options.preset {
            DiskPreset::Quick | DiskPreset::Ibm2001 => CasesPreset::Quick,
            DiskPreset::Full => CasesPreset::Full,
        });
        let mut sweep = disk::Sweep::of(options.preset);
        sweep.blocks = lengths(&options.blocks, || sweep.blocks.clone())?;
        if let Some(most) = options.depth.iter().max() {
            sweep.depth = usize::from(*most);
            sweep.depths = options.depth.iter().copied().map(usize::from).collect();
        }
        if let Some(bytes) = options.file_size {
            sweep.file_bytes = bytes as u64;
        }
        let time = time_of(&options.measure, size.block_time);
        let charts = disk::charts(&options.folder, &sweep, time);
        let preset = name(options.preset);
        Ok(Job::new("disk", preset, &options.measure, size.series, charts, disk::verdict))
    }

    /// `bench all`.
    pub(super) fn all(options: &'a CasesOptions) -> Result<Job<'a>, Failure> {
        let preset = match options.preset {
            CasesPreset::Quick => PipesPreset::Quick,
            CasesPreset::Full => PipesPreset::Full,
        };
        let disk_preset = match options.preset {
            CasesPreset::Quick => DiskPreset::Quick,
            CasesPreset::Full => DiskPreset::Full,
        };
        let (_, time) = pipes::rules(preset);
        let sweep = SweepOptions::preset(preset);
        let mut charts = pipes::charts(&sweep, time_of(&options.measure, time))?;
        let time = time_of(&options.measure, Size::of(options.preset).block_time);
        charts.extend(ipc::charts(&ipc::LENGTHS, pipes::usual_place(), time));
        charts.extend(disk::charts(Path::new("."), &disk::Sweep::of(disk_preset), time));
        charts.extend(Job::spawn(options).charts);
        charts.extend(Job::capture(options).charts);
        let verdict: Verdict = |charts| {
            let each =
                [pipes::verdict, ipc::verdict, disk::verdict, spawn::verdict, capture::verdict];
            let said: Vec<String> = each.iter().filter_map(|verdict| verdict(charts)).collect();
            (!said.is_empty()).then(|| said.join("\n"))
        };
        Ok(Job::of_cases("all", options, charts, verdict))
    }

    fn of_cases(
        benchmark: &'static str,
        options: &'a CasesOptions,
        charts: Vec<Chart>,
        verdict: Verdict,
    ) -> Job<'a> {
        let series = Size::of(options.preset).series;
        Job::new(benchmark, name(options.preset), &options.measure, series, charts, verdict)
    }

    fn new(
        benchmark: &'static str,
        preset: String,
        options: &'a MeasureOptions,
        series: u16,
        charts: Vec<Chart>,
        verdict: Verdict,
    ) -> Job<'a> {
        let settings = settings(options, series);
        Job { benchmark, preset, options, settings, charts, verdict }
    }

    /// Measures, saves and shows.
    pub(super) fn run(mut self) -> Result<i32, Failure> {
        // Whatever can be wrong with the command line is found before anything is measured.
        self.choose()?;
        let files = Files::new(self.options)?;
        let old = self.options.compare.as_deref().map(save::load).transpose()?;
        // Before there is another thread, which would take the signals.
        let stop =
            Stop::catch().map_err(|error| Failure(format!("cannot watch for signals: {error}")))?;
        let mut watching = Watching {
            progress: Progress::new(
                measure::cells(&self.charts),
                self.settings.series,
                self.options.quiet,
            ),
            stop,
            files: &files,
            report: self.empty_report(),
            started: Instant::now(),
            series: None,
            yardsticks: Yardsticks::default(),
        };
        let rules = Rules { series: self.settings.series, seed: self.settings.seed };
        let measured = measure::measure(&mut self.charts, &rules, &mut watching);
        watching.progress.end();
        let complete = measured?;
        watching.note(&self.charts);
        // Of a series that was interrupted; else there is nothing left.
        watching.yardsticks.end_series(&mut watching.report.machine);
        let Watching { mut report, stop, .. } = watching;
        report.complete = complete;
        report.machine.load_after = os_machine::load();
        self.judge(&mut report, old.as_ref());
        // Shown first: a disk that is full must not keep from anybody what has been measured.
        if files.take_stdout() {
            files.print(&report)?;
        } else {
            self.print(&report)?;
        }
        files.save(&report)?;
        // What a benchmark has made is taken away, as this may be the end of us.
        drop(self);
        match stop.end() {
            Some(code) => Ok(code),
            None => report.why_nothing().map_or(Ok(exit_code::SUCCESS), |why| {
                Err(Failure(format!("nothing was measured: {why}")))
            }),
        }
    }

    /// Leaves out what is not asked for.
    fn choose(&mut self) -> Result<(), Failure> {
        let only = &self.options.only;
        let there: Vec<&str> = self.charts.iter().map(|chart| chart.id.as_str()).collect();
        if let Some(unknown) = only.iter().find(|name| !there.contains(&name.as_str())) {
            let there = there.join(", ");
            return Err(Failure(format!(
                "--only: no chart is called \"{unknown}\"; there are {there}"
            )));
        }
        self.charts.retain(|chart| only.is_empty() || only.contains(&chart.id));
        Ok(())
    }

    fn empty_report(&self) -> Report {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Report {
            schema: SCHEMA.to_owned(),
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            benchmark: self.benchmark.to_owned(),
            preset: self.preset.clone(),
            complete: false,
            started_unix_seconds: now.map_or(0, |now| now.as_secs()),
            elapsed_seconds: 0.0,
            settings: self.settings.clone(),
            machine: machine::look(),
            verdict: String::new(),
            warnings: Vec::new(),
            charts: Vec::new(),
            comparison: None,
        }
    }

    /// Says what the figures mean, and what they do not.
    fn judge(&self, report: &mut Report, old: Option<&Report>) {
        report.warnings = advice::warnings(report);
        report.verdict = if report.measured().next().is_none() {
            "Nothing was measured.".to_owned()
        } else if advice::is_too_noisy(report) {
            "This machine is too noisy at the moment for a verdict.".to_owned()
        } else {
            (self.verdict)(&report.charts).unwrap_or_default()
        };
        report.comparison = old.map(|old| compare::compare(old, report));
    }

    fn print(&self, report: &Report) -> Result<(), Failure> {
        const USUAL_COLUMNS: usize = 80;
        let colours = match self.options.color {
            Color::Always => true,
            Color::Never => false,
            // Set and not empty (no-color.org).
            Color::Auto => {
                std::io::stdout().is_terminal()
                    && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty())
            }
        };
        let columns = terminal::columns().unwrap_or(USUAL_COLUMNS);
        let text = show::terminal(report, columns, colours);
        crate::print::print(text)
    }
}

/// Seen while it is measured.
struct Watching<'a> {
    progress: Progress,
    stop: Stop,
    files: &'a Files,
    report: Report,
    started: Instant,
    /// What there was of CPU time when the series began.
    series: Option<CpuTime>,
    yardsticks: Yardsticks,
}

impl Watching<'_> {
    fn note(&mut self, charts: &[Chart]) {
        self.report.elapsed_seconds = self.started.elapsed().as_secs_f64();
        self.report.charts = plan::report(charts);
    }
}

impl Watch for Watching<'_> {
    fn series(&mut self, number: usize) {
        self.progress.series(number);
        self.series = os_machine::cpu_time();
    }

    fn cell(&mut self, name: &str) {
        self.progress.cell(name);
        self.yardsticks.look();
    }

    fn after_series(&mut self, charts: &[Chart]) {
        self.note(charts);
        self.yardsticks.end_series(&mut self.report.machine);
        if let Some((before, after)) = self.series.zip(os_machine::cpu_time()) {
            self.report.machine.others_share.push(machine::others_share(before, after));
        }
        // Said at the end, if it still fails then.
        let _ = self.files.save(&self.report);
    }

    fn stops(&self) -> bool {
        self.stop.is_asked_for()
    }
}

/// What is asked for, or what the preset says.
fn settings(options: &MeasureOptions, series: u16) -> Settings {
    let chance = || {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        // Short enough to be typed again.
        now.map_or(1, |now| u64::from(now.subsec_micros()))
    };
    Settings {
        series: usize::from(options.series.unwrap_or(series)),
        count: None,
        seed: options.seed.unwrap_or_else(chance),
        verify: false,
    }
}

/// The sizes that are asked for, or the usual ones.
fn lengths(asked: &[usize], usual: impl FnOnce() -> Vec<usize>) -> Result<Vec<usize>, Failure> {
    if asked.is_empty() { Ok(usual()) } else { pipes::checked(asked.to_vec()) }
}

fn time_of(options: &MeasureOptions, usual: Duration) -> Duration {
    options.time.as_ref().map_or(usual, |time| time.duration)
}

/// The name by which it is typed.
fn name(preset: impl clap::ValueEnum) -> String {
    preset.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
