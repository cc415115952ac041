//! A program that can be stopped: the first Ctrl-C (or SIGTERM) starts nothing more and lets run what
//! runs, the second one stops that, and the third one ends this program.
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
        // The shell learns that a signal ended us: 130 after Ctrl-C, and its loops end as well.
        signal.raise();
    }
    Ok(())
}

/// How each job ended (`None`: it was not started), and the signal that came first.
pub(crate) type Stopped<K> = (Vec<(K, Option<Outcome>)>, Option<Signal>);

/// Runs the jobs, so many at once.
pub(crate) fn run_jobs<K>(
    at_once: usize,
    jobs: impl IntoIterator<Item = (K, Command)>,
) -> Result<Stopped<K>, Box<dyn Error>> {
    let (drain, stop) = (CancelToken::new(), CancelToken::new());
    let guard = drain.cancel_on(&[Signal::INT, Signal::TERM])?.then(&stop);
    let mut runner = Runner::new(at_once).with_drain(&drain).with_cancel(&stop);
    for (key, mut job) in jobs {
        // In a group of its own, so that Ctrl-C at the terminal is for us to decide on. It must then
        // not outlive us, if the third one ends us.
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
