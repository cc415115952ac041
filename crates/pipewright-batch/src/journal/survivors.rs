//! Processes of a killed run that are still alive: two copies of a job must never run at the same time.
//!
//! The trees of a killed runner end with it. A resumed batch looks for the rest by a variable in their environment, and
//! by the processes that the log has.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{io, thread};

use pipewright::{ErrorKind, ProcessHandle};
use pipewright_os::process::environ::{exiting_processes, has_variable, processes_with_variable};
use pipewright_os::process::open::{group_lives, start_time};
use rusqlite::Connection;

use super::changes::Process;
use super::error::{LogError, LogErrorKind};
use super::sqlite;

/// The variable that every process of a job inherits. Its value is the identity of the batch.
pub(crate) const BATCH_VARIABLE: &str = "PIPEWRIGHT_BATCH_ID";

/// The same with the identity of the run. A copy of a log does not have the runs that began after it was copied, and
/// their jobs are none of its business.
pub(crate) const RUN_VARIABLE: &str = "PIPEWRIGHT_RUN_ID";

/// Looks in a row that find nothing: a chain of forks may get through one.
const CLEAN_LOOKS: u32 = 3;

/// The time that a killed process may take to end. One that takes longer is stuck in the kernel.
const END_WAIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// Kills the processes of the batch that are alive, and waits for their ends. Adds those that were killed: one that
/// takes a while to end is found again, and counts once.
///
/// Those of other runs than `runs` are left alone. `None`: an older version ran, whose processes do not name their run.
///
/// # Errors
/// A process cannot be killed, or does not end.
pub(crate) fn end_survivors(
    batch_id: &str,
    runs: Option<&[String]>,
    killed: &mut BTreeSet<u32>,
) -> io::Result<()> {
    let mut clean = 0;
    let until = Instant::now() + END_WAIT;
    loop {
        let mut pids = match processes_with_variable(BATCH_VARIABLE, batch_id) {
            // This system does not show environments. Its trees have ended with their runner.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(()),
            pids => pids?,
        };
        if let Some(runs) = runs {
            pids = of_runs(&pids, runs)?;
        }
        let Some(pid) = pids.first().copied() else {
            clean += 1;
            if clean < CLEAN_LOOKS {
                continue;
            }
            wait_for_exits(until);
            return Ok(());
        };
        clean = 0;
        if Instant::now() >= until {
            return Err(io::Error::other(format!("process {pid} of an earlier run does not end")));
        }
        for pid in pids {
            if kill(pid, batch_id)? {
                killed.insert(pid);
            }
        }
        thread::park_timeout(PAUSE);
    }
}

/// Returns those processes that belong to one of the runs.
fn of_runs(pids: &[u32], runs: &[String]) -> io::Result<Vec<u32>> {
    let mut of_runs = Vec::new();
    for &pid in pids {
        for run in runs {
            if has_variable(pid, RUN_VARIABLE, run)? {
                of_runs.push(pid);
                break;
            }
        }
    }
    Ok(of_runs)
}

/// Waits for processes that exit: they may hold locks of the batch. Whose they are, nothing shows any more.
///
/// Reads their states and opens none of them: waiting for one that is a child of this program would reap it, and the
/// code that started it would lose its status.
fn wait_for_exits(until: Instant) {
    let mut exiting = exiting_processes().unwrap_or_default();
    // One that does not end is stuck in the kernel, and may be another program's.
    while !exiting.is_empty() && Instant::now() < until {
        thread::park_timeout(PAUSE);
        let now = exiting_processes().unwrap_or_default();
        exiting.retain(|pid| now.contains(pid));
    }
}

fn kill(pid: u32, batch_id: &str) -> io::Result<bool> {
    let opened = match ProcessHandle::open(pid) {
        Ok(opened) => opened,
        Err(error) if matches!(error.kind(), ErrorKind::NoSuchProcess) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    // Another process may have got the number before it was opened.
    if !has_variable(pid, BATCH_VARIABLE, batch_id)? {
        return Ok(false);
    }
    Ok(opened.kill()?)
}

// Jobs of a killed runner that still run.
//
// A runner takes its jobs along when it is killed, and a resumed batch finds the rest by a variable in their
// environment. Neither reaches a command that has become another user's, as with `sudo`: the kernel forgets to signal
// it, and nobody may read its environment. So the log has the process of each attempt that runs.

/// The time that the rest of a group may take to end, which its own runner has killed.
const REST_WAIT: Duration = Duration::from_secs(1);

/// A job that ran when its runner was killed.
#[derive(Debug)]
pub(super) struct LeftJob {
    number: u64,
    process: Process,
}

/// Reads those whose process the log has.
pub(super) fn jobs_left(connection: &Connection) -> rusqlite::Result<Vec<LeftJob>> {
    if sqlite::version(connection)? <= 4 {
        return Ok(Vec::new());
    }
    let mut query = connection.prepare(
        "SELECT jobs.number, pid, pid_start FROM running JOIN jobs ON jobs.id = running.job \
         WHERE pid IS NOT NULL AND pid_start IS NOT NULL ORDER BY job",
    )?;
    let left = query.query_map([], |row| {
        let number = row.get::<_, i64>(0)?.unsigned_abs();
        let start = row.get::<_, i64>(2)?.unsigned_abs();
        Ok(LeftJob { number, process: Process { pid: row.get(1)?, start } })
    })?;
    left.collect()
}

/// Kills those that are alive, and waits for their ends. Returns the processes that were killed. `end_rest` kills the
/// processes that name the batch: those of a group whose leader has ended.
///
/// # Errors
/// One cannot be killed, or does not end.
pub(super) fn end_jobs(
    path: &Path,
    left: &[LeftJob],
    end_rest: impl FnOnce(&mut BTreeSet<u32>) -> io::Result<()>,
) -> Result<BTreeSet<u32>, LogError> {
    let refused = |job: &LeftJob, error| {
        let kind = LogErrorKind::StillRuns { job: job.number, pid: job.process.pid };
        LogError::caused_by(path, kind, error)
    };
    let mut killed = Vec::new();
    for job in left.iter().filter(|job| job.lives()) {
        killed.push((job, job.kill().map_err(|error| refused(job, error))?));
    }
    let pids = killed.iter().filter(|(_, is_killed)| *is_killed).map(|(job, _)| job.process.pid);
    let mut pids: BTreeSet<u32> = pids.collect();
    if killed.iter().any(|(job, _)| job.lives()) {
        // Ignored: what is left is an error below.
        let _ = end_rest(&mut pids);
    }
    for (job, is_killed) in killed {
        let until = Instant::now() + if is_killed { END_WAIT } else { REST_WAIT };
        while job.lives() {
            if Instant::now() >= until {
                return Err(refused(job, io::Error::other("it does not end")));
            }
            thread::park_timeout(PAUSE);
        }
    }
    Ok(pids)
}

impl LeftJob {
    /// Returns true if its process lives, or another one of its group. Each command of a job leads a group, whose
    /// number no other process gets while one is in it.
    fn lives(&self) -> bool {
        let Process { pid, start } = self.process;
        match start_time(pid) {
            Some(found) => found == start,
            // Where no process can be seen, none would have been noted.
            None => group_lives(pid).unwrap_or(false),
        }
    }

    /// Returns false if its process has ended. Its group lives then, or that of another one: its number ends neither.
    fn kill(&self) -> io::Result<bool> {
        let Process { pid, start } = self.process;
        let opened = match ProcessHandle::open(pid) {
            Ok(opened) => opened,
            Err(error) if matches!(error.kind(), ErrorKind::NoSuchProcess) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        // Another process may have got the number before it was opened.
        match start_time(pid) == Some(start) {
            true => Ok(opened.kill()?),
            false => Ok(false),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Returns the name of a batch that another run of this suite beside does not have.
    fn name(batch: &str) -> String {
        format!("a batch of {batch} of {}", std::process::id())
    }

    #[test]
    fn children_of_this_program_keep_their_status_for_the_code_that_started_them() {
        let finished = AtomicBool::new(false);
        thread::scope(|scope| {
            let looking = scope.spawn(|| {
                while !finished.load(Ordering::Relaxed) {
                    end_survivors("of no batch", None, &mut BTreeSet::new()).unwrap();
                }
            });
            let statuses: Vec<_> = (0..500).map(|_| Command::new("true").status()).collect();
            finished.store(true, Ordering::Relaxed);
            looking.join().unwrap();
            assert!(statuses.into_iter().all(|status| status.unwrap().success()));
        });
    }

    #[test]
    fn each_killed_process_counts_once() {
        // Those of the lowest priority end late beside threads that never sleep.
        let batch = name("many");
        let sleep = |_| {
            let mut child = Command::new("nice");
            child.args(["-n", "19", "sleep", "600"]).env(BATCH_VARIABLE, &batch);
            child.spawn().unwrap()
        };
        let mut children: Vec<_> = (0..20).map(sleep).collect();
        for child in &children {
            let name = format!("/proc/{}/comm", child.id());
            while std::fs::read_to_string(&name).unwrap() != "sleep\n" {
                thread::park_timeout(PAUSE);
            }
        }
        let finished = AtomicBool::new(false);
        let killed = thread::scope(|scope| {
            for _ in 0..2 * thread::available_parallelism().unwrap().get() {
                scope.spawn(|| {
                    while !finished.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            scope.spawn(|| children.iter_mut().all(|child| child.wait().is_ok()));
            let mut killed = BTreeSet::new();
            let ended = end_survivors(&batch, None, &mut killed);
            finished.store(true, Ordering::Relaxed);
            ended.map(|()| killed.len())
        });
        assert_eq!(killed.unwrap(), 20);
    }

    #[test]
    fn only_processes_of_known_runs_are_killed() {
        let batch = name("survivors");
        let mut child = Command::new("sleep");
        child.env(BATCH_VARIABLE, &batch).env(RUN_VARIABLE, "later");
        let mut child = child.arg("600").spawn().unwrap();
        let end = |runs: &[&str]| {
            let runs: Vec<String> = runs.iter().map(|run| (*run).to_owned()).collect();
            let mut killed = BTreeSet::new();
            end_survivors(&batch, Some(&runs), &mut killed).unwrap();
            killed.len()
        };
        // A copy of the log, made before that run.
        assert_eq!(end(&["earlier"]), 0);
        assert!(child.try_wait().unwrap().is_none());
        let waiting = thread::spawn(move || child.wait().unwrap());
        assert_eq!(end(&["earlier", "later"]), 1);
        assert!(!waiting.join().unwrap().success());
    }
}
