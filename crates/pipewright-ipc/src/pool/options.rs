//! What a pool is to be like.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pipewright::Source;
use pipewright_os::base::cpu;

use crate::options::Options;
use crate::worker::MOST_WAITING;

/// What a pool is to be like.
///
/// ```
/// use pipewright_ipc::PoolOptions;
/// let options = PoolOptions { max_workers: 4, ..PoolOptions::default() };
/// assert_eq!(options.calls_per_worker, 1);
/// ```
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// What each connection is to be like. Its timeout does not count: calls have their own. Most of the time of a
    /// worker's start goes into the pages of its rings: where calls are small, smaller rings or none make that short.
    pub channel: Options,
    /// So many workers are kept even if there is nothing to do. 0.
    pub min_workers: usize,
    /// More are never started. The number of processors that this process may use.
    pub max_workers: usize,
    /// How many calls a worker is given at a time; it answers them one after the other, and the end of
    /// it costs all of them. More than one saves it the wait for the next. 1; at most 1024.
    pub calls_per_worker: usize,
    /// How many calls that were [begun](crate::Pool::begin) may wait for a worker. 4096.
    pub max_waiting: usize,
    /// How long a call may take, unless it says so itself. `None`: as long as it likes.
    pub call_timeout: Option<Duration>,
    /// How long a worker has to end a call that nobody wants any more, before it is killed. 1 s.
    pub cancel_grace: Duration,
    /// How often a call that is [idempotent](crate::Request::idempotent) is tried again. 2.
    pub retries: u32,
    /// When a worker that has nothing to do is let go, where there are more than
    /// [`min_workers`](Self::min_workers). 60 s; `None`: never.
    pub idle_timeout: Option<Duration>,
    /// A worker that has answered so many calls is replaced. `None`: never for that.
    pub max_jobs: Option<u64>,
    /// A worker that was started so long ago is replaced, as soon as it has no call. `None`: never for that.
    pub max_age: Option<Duration>,
    /// A worker that uses more memory than this after a call is replaced; in bytes. `None`: never for that.
    pub max_rss_bytes: Option<u64>,
    /// Workers are replaced when their executable has changed. `true`.
    pub replace_when_changed: bool,
    /// The same for other files that they are made of.
    pub watched_files: Vec<PathBuf>,
    /// After each call the worker has to become [as if it had just been started](crate::worker::Serve::reset), and
    /// has so long for that; else it is replaced. `None`: a worker keeps what it likes.
    pub reset_timeout: Option<Duration>,
    /// A worker that could not be started, or ended before it had answered anything, is replaced after
    /// this time, and then after twice as long each time, up to
    /// [`max_backoff`](Self::max_backoff). 50 ms; at least 1 ms.
    pub backoff: Duration,
    /// 5 s.
    pub max_backoff: Duration,
    /// After so many starts in vain, one after the other, the calls that wait are told why. 3.
    pub start_attempts: u32,
    /// How much is kept of what a worker writes to its stdout, and as much of its stderr, in bytes: the
    /// end of it. 16 KiB.
    pub kept_output_bytes: usize,
    /// Is given what workers write, line by line.
    pub on_line: Option<OnLine>,
    /// How the pool ends.
    pub shutdown: Schedule,
}

/// How long each step of an end takes at most, before the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// For the calls that were begun. 30 s.
    pub drain: Duration,
    /// After the goodbye, until SIGTERM. 2 s.
    pub goodbye: Duration,
    /// After that, until SIGKILL. 1 s.
    pub terminate: Duration,
}

/// A line that a worker has written, without its end.
#[derive(Debug)]
#[non_exhaustive]
pub struct LogLine<'a> {
    /// Which worker of the pool, counted from 1.
    pub worker: u64,
    /// Its process id.
    pub pid: u32,
    /// The call that it had, where it had one alone.
    pub call: Option<u64>,
    /// Where it wrote it.
    pub source: Source,
    /// The line; one of more than 16 KiB comes in pieces. What is no UTF-8 is U+FFFD.
    pub text: &'a str,
}

/// Takes the lines that workers write, on the thread that drives the pool: it is to be quick, and has a stack of
/// 256 KiB. If it panics the pool is at its end; a call of the same pool that it waits for never ends.
///
/// So that each line is told with its call, every call of such a pool goes through that thread, which takes longer
/// than a caller who talks to a free worker without it.
#[derive(Clone)]
pub struct OnLine(Arc<dyn Fn(&LogLine<'_>) + Send + Sync>);

impl OnLine {
    /// From a function.
    ///
    /// ```
    /// use pipewright_ipc::{OnLine, PoolOptions};
    /// let on_line = OnLine::new(|line| eprintln!("worker {}: {}", line.pid, line.text));
    /// let options = PoolOptions { on_line: Some(on_line), ..PoolOptions::default() };
    /// ```
    pub fn new(take: impl Fn(&LogLine<'_>) + Send + Sync + 'static) -> OnLine {
        OnLine(Arc::new(take))
    }

    pub(super) fn take(&self, line: &LogLine<'_>) {
        (self.0)(line);
    }
}

impl fmt::Debug for OnLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnLine")
    }
}

impl Default for PoolOptions {
    fn default() -> PoolOptions {
        PoolOptions {
            channel: Options::default(),
            min_workers: 0,
            max_workers: cpu::online(),
            calls_per_worker: 1,
            max_waiting: 4096,
            call_timeout: None,
            cancel_grace: Duration::from_secs(1),
            retries: 2,
            idle_timeout: Some(Duration::from_secs(60)),
            max_jobs: None,
            max_age: None,
            max_rss_bytes: None,
            replace_when_changed: true,
            watched_files: Vec::new(),
            reset_timeout: None,
            backoff: Duration::from_millis(50),
            max_backoff: Duration::from_secs(5),
            start_attempts: 3,
            kept_output_bytes: 16 << 10,
            on_line: None,
            shutdown: Schedule::default(),
        }
    }
}

impl Default for Schedule {
    fn default() -> Schedule {
        Schedule {
            drain: Duration::from_secs(30),
            goodbye: Duration::from_secs(2),
            terminate: Duration::from_secs(1),
        }
    }
}

impl PoolOptions {
    /// How many calls a worker is given at a time: one alone where it is reset in between.
    pub(super) fn each(&self) -> usize {
        if self.reset_timeout.is_some() { 1 } else { self.calls_per_worker.clamp(1, MOST_WAITING) }
    }
}
