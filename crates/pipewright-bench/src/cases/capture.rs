//! `bench capture`: the time to capture the output of processes through the library.

use std::io::Read as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pipewright::{Capture, Stdio, run_all};
use pipewright_os::host::host_info;

use super::{Timing, case, chart, starting};
use crate::child::ChildTask;
use crate::plan::{CellError, PlannedChart, Point};
use crate::report;
use crate::units::{Unit, bytes};

/// The amount of work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amount {
    pub(crate) stream_bytes: u64,
    pub(crate) children: usize,
}

const LINES: usize = 1000;
const AT_ONCE: usize = 64;
const LINE_WRITES: &str = "1000 lines, one write each";

/// Returns the charts, with that time for each cell.
pub(crate) fn charts(amount: Amount, time: Duration) -> Vec<PlannedChart> {
    let Amount { stream_bytes, children } = amount;
    let many = format!("{children} children with {LINES} lines each");
    vec![
        chart("capture-lines", "Capturing the output of one child", Unit::Seconds, time, lines()),
        chart(
            "capture-stream",
            &format!("Reading {} from one child", bytes(stream_bytes)),
            Unit::BytesPerSecond,
            time,
            streams(stream_bytes),
        ),
        chart("capture-many", &format!("Capturing {many}"), Unit::Seconds, time, crowds(children)),
    ]
}

fn lines() -> Vec<Point> {
    let one = |label, one_write| {
        starting(label, move || {
            let begin = Instant::now();
            let capture = ChildTask::Lines { count: LINES, one_write }.command()?.capture()?;
            let time = begin.elapsed();
            check(&capture, LINES)?;
            Ok(time.into())
        })
    };
    vec![
        one(LINE_WRITES, false),
        one("1000 lines, one write", true),
        starting("1000 lines, line by line", || {
            let begin = Instant::now();
            let mut count = 0;
            let task = ChildTask::Lines { count: LINES, one_write: false };
            for line in task.command()?.lines()? {
                line?;
                count += 1;
            }
            let time = begin.elapsed();
            if count == LINES { Ok(time.into()) } else { Err(wrong(count, LINES)) }
        }),
        starting("no output", || {
            let begin = Instant::now();
            let capture = ChildTask::Lines { count: 0, one_write: true }.command()?.capture()?;
            let time = begin.elapsed();
            check(&capture, 0)?;
            Ok(time.into())
        }),
    ]
}

/// Checks that the child succeeded and that all lines came in order.
fn check(capture: &Capture, count: usize) -> Result<(), CellError> {
    if !capture.success() {
        return Err(CellError::Skip(format!("the child exited with {}", capture.status)));
    }
    let found = capture.stdout.lines().enumerate().filter(|(number, line)| {
        line.strip_prefix("line ").and_then(|it| it.parse().ok()) == Some(*number)
    });
    let found = found.count();
    if found == count { Ok(()) } else { Err(wrong(found, count)) }
}

fn wrong(found: usize, count: usize) -> CellError {
    CellError::Corrupt(format!("{found} of {count} lines arrived"))
}

fn streams(stream_bytes: u64) -> Vec<Point> {
    vec![
        case("kept", Unit::BytesPerSecond, move || {
            // A growing buffer needs twice as much for a moment.
            if host_info::free_memory_bytes().is_some_and(|free| free < 2 * stream_bytes) {
                return Err(CellError::Skip("needs more memory than is free".to_owned()));
            }
            let begin = Instant::now();
            let output = ChildTask::Flood { bytes: stream_bytes }.command()?.output()?;
            let time = begin.elapsed();
            took(time, output.stdout.len() as u64, stream_bytes)
        }),
        case("read and discarded", Unit::BytesPerSecond, move || {
            let begin = Instant::now();
            let mut command = ChildTask::Flood { bytes: stream_bytes }.command()?;
            let mut child = command.stdout(Stdio::piped()).spawn()?;
            let mut count = 0;
            if let Some(stdout) = &mut child.stdout {
                let mut buffer = vec![0; 64 << 10];
                loop {
                    match stdout.read(&mut buffer)? {
                        0 => break,
                        more => count += more as u64,
                    }
                }
            }
            child.wait()?;
            took(begin.elapsed(), count, stream_bytes)
        }),
    ]
}

fn took(time: Duration, bytes: u64, expected: u64) -> Result<Timing, CellError> {
    if bytes == expected {
        Ok(Timing { time, bytes })
    } else {
        Err(CellError::Corrupt(format!("{bytes} of {expected} bytes arrived")))
    }
}

fn crowds(children: usize) -> Vec<Point> {
    let task = ChildTask::Lines { count: LINES, one_write: false };
    let one_thread = {
        let task = task.clone();
        move || {
            let begin = Instant::now();
            let commands = (0..children).map(|_| task.command()).collect::<Result<Vec<_>, _>>()?;
            for capture in run_all(commands).concurrency(AT_ONCE).captures() {
                check(&capture?, LINES)?;
            }
            Ok(begin.elapsed().into())
        }
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let in_turn = format!("{AT_ONCE} at once, one thread for all");
    let threads = |label: String, threads: usize| {
        let task = task.clone();
        starting(label, move || parallel(&task, children, threads))
    };
    vec![
        starting(in_turn, one_thread),
        threads(format!("{AT_ONCE} at once, one thread each"), AT_ONCE),
        // As many as there are processors, as in a parallel loop.
        threads("a parallel loop over all processors".to_owned(), processors),
        threads("one after the other".to_owned(), 1),
    ]
}

/// Captures children on that many threads, on each one after the other.
fn parallel(task: &ChildTask, children: usize, threads: usize) -> Result<Timing, CellError> {
    let begin = Instant::now();
    let next = AtomicUsize::new(0);
    let work = || -> Result<(), CellError> {
        while next.fetch_add(1, Ordering::Relaxed) < children {
            check(&task.command()?.capture()?, LINES)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let start = |_| thread::Builder::new().spawn_scoped(scope, work);
        let workers: Vec<_> = (0..threads).map(start).collect::<Result<_, _>>()?;
        workers.into_iter().try_for_each(|worker| {
            worker.join().unwrap_or_else(|_| Err(CellError::Skip("a thread panicked".to_owned())))
        })
    })?;
    Ok(begin.elapsed().into())
}

/// Sums up the figures in a sentence; `None`: not measured.
pub(crate) fn verdict(charts: &[report::Chart]) -> Option<String> {
    let chart = |id: &str| charts.iter().find(|chart| chart.id == id);
    let cells = |id: &str| chart(id).into_iter().flat_map(report::Chart::cells);
    let lines = cells("capture-lines").find(|cell| cell.label == LINE_WRITES)?.median?;
    let mut summary =
        format!("Capturing 1000 lines of a child takes {}", Unit::Seconds.show(lines));
    if let Some(kept) =
        cells("capture-stream").find(|cell| cell.label == "kept").and_then(|it| it.median)
    {
        summary.push_str(&format!("; large output is kept at {}", Unit::BytesPerSecond.show(kept)));
    }
    let best = chart("capture-many").and_then(|chart| chart.curves.first()?.best(chart.unit));
    if let Some((cell, best)) = best {
        let time = Unit::Seconds.show(best.median);
        summary.push_str(&format!("; many children take {time} at best ({})", cell.label));
    }
    summary.push('.');
    Some(summary)
}
