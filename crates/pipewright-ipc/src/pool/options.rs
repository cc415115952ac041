//! The options of a pool, and its statistics.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pipewright::Source;
use pipewright_os::base::cpu;

use crate::options::Options;

/// The options of a pool.
///
/// ```
/// use pipewright_ipc::PoolOptions;
/// let options = PoolOptions { max_workers: 4, ..PoolOptions::default() };
/// assert_eq!(options.calls_per_worker, 1);
/// ```
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// The options of each connection. The `timeout` in them has no effect: calls have their own. Mapping the pages of
    /// the rings takes most of the time of a worker's start. If calls are small, smaller rings (`ring_bytes`) or no
    /// shared memory make starts faster.
    pub channel: Options,
    /// The number of workers kept even without calls. Default: 0.
    pub min_workers: usize,
    /// The most workers that serve at a time; as many again may be leaving. Default: the number of online processors.
    /// On Unix these are the machine's, regardless of the affinity and the CPU quota of this process: set it in
    /// containers.
    pub max_workers: usize,
    /// The number of calls that a worker gets at a time, at most 1024. It answers them one after the other. With more
    /// than one, the worker need not wait for its next call, but all of them are lost if it crashes. Default: 1.
    pub calls_per_worker: usize,
    /// The number of calls waiting for a worker at which [`begin`](crate::Pool::begin) fails. Each keeps its request in
    /// memory, so lower it for large requests. [`call`](crate::Pool::call) has no limit. Default: 4096.
    pub max_waiting: usize,
    /// The timeout of calls without one of their own. It includes the wait for a worker. Default: `None`, no limit.
    pub call_timeout: Option<Duration>,
    /// The time that a worker has to answer a call that was cancelled or timed out, before it is killed. Default: 1 s.
    pub cancel_grace: Duration,
    /// The most retries of an [idempotent](crate::Request::idempotent) call. Default: 2.
    pub retries: u32,
    /// The idle time after which a worker is ended, if there are more than [`min_workers`](Self::min_workers). Default:
    /// 60 s. `None`: never.
    pub idle_timeout: Option<Duration>,
    /// The number of calls after which a worker is replaced. Default: `None`, no limit.
    pub max_jobs: Option<u64>,
    /// The age at which a worker is replaced, as soon as it has no call. Default: `None`, no limit.
    pub max_age: Option<Duration>,
    /// The memory use, after a call, above which a worker is replaced, in bytes. Default: `None`, no limit.
    pub max_rss_bytes: Option<u64>,
    /// Replaces workers when their executable has changed. Default: `true`.
    pub replace_when_changed: bool,
    /// Other files whose change replaces workers. Default: none.
    pub watched_files: Vec<PathBuf>,
    /// The time that a worker has to [reset](crate::worker::Serve::reset) itself after each call. A worker that takes
    /// longer is replaced. Default: `None`, workers are not reset.
    pub reset_timeout: Option<Duration>,
    /// The pause before the next start if a worker could not be started, or ended before its first answer. It doubles
    /// each time, up to [`max_backoff`](Self::max_backoff). Default: 50 ms; at least 1 ms.
    pub backoff: Duration,
    /// The longest pause. Default: 5 s.
    pub max_backoff: Duration,
    /// The number of consecutive failed starts after which waiting calls fail with the error. Default: 3.
    pub start_attempts: u32,
    /// The number of bytes kept from the end of a worker's stderr, for [errors](crate::ErrorKind::Lost), and from the
    /// end of its stdout. Default: 16 KiB each.
    pub kept_output_bytes: usize,
    /// A function that receives the output of workers, line by line. Default: `None`.
    pub on_line: Option<OnLine>,
    /// The schedule of a shutdown.
    pub shutdown: Schedule,
}

/// The longest duration of each step of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// The time for calls in progress and for those that wait, which fresh workers may serve. Default: 30 s.
    pub drain: Duration,
    /// The time from the end of the connection (GOODBYE) to SIGTERM. Default: 2 s.
    pub goodbye: Duration,
    /// The time from SIGTERM to SIGKILL. Default: 1 s.
    pub terminate: Duration,
}

/// A line of a worker's output, without its newline.
#[derive(Debug)]
#[non_exhaustive]
pub struct LogLine<'a> {
    /// The worker's number in the pool, from 1.
    pub worker: u64,
    /// Its process id.
    pub pid: u32,
    /// The id of the worker's call, if it had exactly one at that time.
    pub call: Option<u64>,
    /// The stream: stdout or stderr.
    pub source: Source,
    /// The line. A line of more than 16 KiB comes in several parts. U+FFFD replaces invalid UTF-8.
    pub text: &'a str,
}

/// A function that receives the lines of workers' output. It runs on the pool's thread, so it should be quick, and has
/// a stack of 256 KiB. A panic in it ends the pool. It must not wait for a call of the same pool: that call would
/// never end.
///
/// Each line is reported with its call, so all calls of such a pool go through that thread. This is slower than the
/// direct calls of a pool without such a function.
#[derive(Clone)]
pub struct OnLine(Arc<dyn Fn(&LogLine<'_>) + Send + Sync>);

impl OnLine {
    /// Creates an `OnLine` from a function.
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

/// The state and the counters of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PoolStats {
    /// The current workers.
    pub workers: Vec<WorkerStatus>,
    /// Calls that wait for a worker.
    pub waiting: usize,
    /// Calls that got a reply.
    pub replies: u64,
    /// Calls that the worker reported as failed.
    pub failures: u64,
    /// Retries: calls given to another worker after theirs was lost.
    pub retries: u64,
    /// Calls that ended with [`Lost`](crate::ErrorKind::Lost).
    pub lost: u64,
    /// Calls that were cancelled or timed out.
    pub cancelled: u64,
    /// Workers that were started.
    pub started: u64,
    /// Starts that failed.
    pub failed_starts: u64,
    /// Workers that ended unexpectedly: they crashed or exited, violated the protocol, or did not end a cancelled call.
    pub died: u64,
    /// Workers that the pool ended because they were idle for too long or were replaced.
    pub retired: u64,
}

/// The state of one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerStatus {
    /// The worker's number in the pool, from 1.
    pub number: u64,
    /// Its process id.
    pub pid: u32,
    /// The current state.
    pub state: WorkerState,
    /// Calls that it has answered, with a reply or an error.
    pub jobs: u64,
    /// True if shared memory is in use. False until the handshake is complete.
    pub shared_memory: bool,
    /// The reason why shared memory is not in use although the pool's options allow it, as in
    /// [`Stats`](crate::Stats::fallback).
    pub fallback: Option<Arc<str>>,
}

/// The state of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WorkerState {
    /// Has started, and has not completed the handshake.
    Starting,
    /// Waits for a call.
    Idle,
    /// Handles calls.
    Busy,
    /// Resets its state.
    Resetting,
    /// Is about to end: the pool retires it, or its connection has failed.
    Leaving,
}
