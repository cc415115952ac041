//! `bench capture`: what it costs to take what processes print, through the library.

use std::io::Read as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pipewright::{Capture, Stdio, run_all};
use pipewright_os::host::host_info;

use super::cases::{Took, case, chart, starting};
use super::peer::Act;
use super::plan::{Chart, Failed, Point};
use super::report;
use super::units::{Unit, bytes};

/// How much there is to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Amount {
    pub(super) stream_bytes: u64,
    pub(super) children: usize,
}

const LINES: usize = 1000;
const AT_ONCE: usize = 64;
const LINE_WRITES: &str = "1000 lines, a write each";

/// The charts, each cell for that long.
pub(super) fn charts(amount: Amount, time: Duration) -> Vec<Chart> {
    let Amount { stream_bytes, children } = amount;
    let many = format!("{children} children with {LINES} lines each");
    vec![
        chart("capture-lines", "Capturing what one child prints", Unit::Seconds, time, lines()),
        chart(
            "capture-stream",
            &format!("Taking {} from one child", bytes(stream_bytes)),
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
            let capture = Act::Lines { count: LINES, one_write }.command()?.capture()?;
            let time = begin.elapsed();
            check(&capture, LINES)?;
            Ok(time.into())
        })
    };
    vec![
        one(LINE_WRITES, false),
        one("1000 lines, one write", true),
        starting("1000 lines, as they come", || {
            let begin = Instant::now();
            let mut count = 0;
            let act = Act::Lines { count: LINES, one_write: false };
            for line in act.command()?.lines()? {
                line?;
                count += 1;
            }
            let time = begin.elapsed();
            if count == LINES { Ok(time.into()) } else { Err(wrong(count, LINES)) }
        }),
        starting("nothing", || {
            let begin = Instant::now();
            let capture = Act::Lines { count: 0, one_write: true }.command()?.capture()?;
            let time = begin.elapsed();
            check(&capture, 0)?;
            Ok(time.into())
        }),
    ]
}

/// All lines, in order, and a child that has ended well.
fn check(capture: &Capture, count: usize) -> Result<(), Failed> {
    if !capture.success() {
        return Err(Failed::Skip(format!("the child ended with {}", capture.status)));
    }
    let found = capture.stdout.lines().enumerate().filter(|(number, line)| {
        line.strip_prefix("line ").and_then(|it| it.parse().ok()) == Some(*number)
    });
    let found = found.count();
    if found == count { Ok(()) } else { Err(wrong(found, count)) }
}

fn wrong(found: usize, count: usize) -> Failed {
    Failed::Wrong(format!("{found} lines came of {count}"))
}

fn streams(stream_bytes: u64) -> Vec<Point> {
    vec![
        case("kept", Unit::BytesPerSecond, move || {
            // Twice, while a buffer grows.
            if host_info::free_memory_bytes().is_some_and(|free| free < 2 * stream_bytes) {
                return Err(Failed::Skip("takes more memory than is free".to_owned()));
            }
            let begin = Instant::now();
            let output = Act::Flood { bytes: stream_bytes }.command()?.output()?;
            let time = begin.elapsed();
            took(time, output.stdout.len() as u64, stream_bytes)
        }),
        case("read and forgotten", Unit::BytesPerSecond, move || {
            let begin = Instant::now();
            let mut command = Act::Flood { bytes: stream_bytes }.command()?;
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

fn took(time: Duration, bytes: u64, expected: u64) -> Result<Took, Failed> {
    if bytes == expected {
        Ok(Took { time, bytes })
    } else {
        Err(Failed::Wrong(format!("{bytes} bytes came of {expected}")))
    }
}

fn crowds(children: usize) -> Vec<Point> {
    let act = Act::Lines { count: LINES, one_write: false };
    let one_thread = {
        let act = act.clone();
        move || {
            let begin = Instant::now();
            let commands = (0..children).map(|_| act.command()).collect::<Result<Vec<_>, _>>()?;
            for capture in run_all(commands).concurrency(AT_ONCE).captures() {
                check(&capture?, LINES)?;
            }
            Ok(begin.elapsed().into())
        }
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let in_turn = format!("{AT_ONCE} at once, one thread for all");
    let threads = |label: String, threads: usize| {
        let act = act.clone();
        starting(label, move || parallel(&act, children, threads))
    };
    vec![
        starting(in_turn, one_thread),
        threads(format!("{AT_ONCE} at once, a thread for each"), AT_ONCE),
        // What a parallel loop does: as many as there are processors.
        threads("a parallel loop over all processors".to_owned(), processors),
        threads("one after the other".to_owned(), 1),
    ]
}

/// So many threads, each of which captures one child after the other.
fn parallel(act: &Act, children: usize, threads: usize) -> Result<Took, Failed> {
    let begin = Instant::now();
    let next = AtomicUsize::new(0);
    let work = || -> Result<(), Failed> {
        while next.fetch_add(1, Ordering::Relaxed) < children {
            check(&act.command()?.capture()?, LINES)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let start = |_| thread::Builder::new().spawn_scoped(scope, work);
        let workers: Vec<_> = (0..threads).map(start).collect::<Result<_, _>>()?;
        workers.into_iter().try_for_each(|worker| {
            worker.join().unwrap_or_else(|_| Err(Failed::Skip("a thread panicked".to_owned())))
        })
    })?;
    Ok(begin.elapsed().into())
}

/// In a sentence; `None`: it was not measured.
pub(super) fn verdict(charts: &[report::Chart]) -> Option<String> {
    let chart = |id: &str| charts.iter().find(|chart| chart.id == id);
    let cells = |id: &str| chart(id).into_iter().flat_map(|it| &it.curves).flat_map(|it| &it.cells);
    let lines = cells("capture-lines").find(|cell| cell.label == LINE_WRITES)?.median?;
    let mut said = format!("Capturing 1000 lines of a child takes {}", Unit::Seconds.show(lines));
    if let Some(kept) =
        cells("capture-stream").find(|cell| cell.label == "kept").and_then(|it| it.median)
    {
        said.push_str(&format!("; a large output is kept at {}", Unit::BytesPerSecond.show(kept)));
    }
    let best = chart("capture-many").and_then(|chart| chart.curves.first()?.best(chart.unit));
    if let Some((cell, summary)) = best {
        let time = Unit::Seconds.show(summary.median);
        said.push_str(&format!("; many children take {time} at best ({})", cell.label));
    }
    said.push('.');
    Some(said)
}
