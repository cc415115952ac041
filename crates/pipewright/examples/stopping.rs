//! A program that can be stopped. After the first Ctrl-C (or SIGTERM) it starts nothing new, and running
//! jobs continue. The second one stops these jobs, and the third one ends this program.
//!
//! `cargo run --example stopping -- 'sleep 5' 'sleep 10' 'sleep 5'`

use std::error::Error;
use std::time::Duration;

use pipewright::{CancelToken, Command, ErrorKind, Outcome, Runner, Scope, Signal};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let mut scripts: Vec<String> = std::env::args().skip(1).filter(|it| it.contains(' ')).collect();
    if scripts.is_empty() {
        scripts = ["echo one", "echo two"].map(String::from).into();
    }
    let jobs = scripts.into_iter().map(|script| {
        let command = Command::new("sh").args(["-c", &script]).owned();
        (script, command)
    });
    let (ends, signal) = run_jobs(2, jobs)?;
    for (script, end) in ends {
        println!("{script}: {}", end.map_or("not started".into(), |outcome| outcome.to_string()));
    }
    if let Some(signal) = signal {
        // The shell sees that a signal ended this program (130 after Ctrl-C), and ends its loops too.
        signal.raise();
    }
    Ok(())
}

/// The outcome of each job (`None`: not started), and the first signal that arrived.
pub(crate) type Stopped<K> = (Vec<(K, Option<Outcome>)>, Option<Signal>);

/// Runs the jobs, at most `at_once` at the same time.
pub(crate) fn run_jobs<K>(
    at_once: usize,
    jobs: impl IntoIterator<Item = (K, Command)>,
) -> Result<Stopped<K>, Box<dyn Error>> {
    let (drain, stop) = (CancelToken::new(), CancelToken::new());
    let guard = drain.cancel_on(&[Signal::INT, Signal::TERM])?.then(&stop);
    let mut runner = Runner::new(at_once).with_drain(&drain).with_cancel(&stop);
    for (key, mut job) in jobs {
        // The job has its own group, so Ctrl-C at the terminal reaches only this program. The job must
        // not outlive this program if the third Ctrl-C ends it.
        job.own_group().kill_on_parent_exit(Scope::Child).kill_grace(Duration::from_secs(3));
        runner.push(key, job);
    }
    let mut ends = Vec::new();
    for (key, result) in runner {
        match result {
            Ok(capture) => ends.push((key, Some(capture.outcome))),
            Err(error) if error.kind() == &ErrorKind::Cancelled => ends.push((key, None)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok((ends, guard.received()))
}
