//! Batches: the settings, the run, and its summary.
//!
//! | file | contents |
//! |---|---|
//! | `settings.rs` | settings of the log, of reports and of the memory of jobs |
//! | `run.rs` | a batch that runs; counts, the exit code |
//! | `check.rs` | the check of a whole input |
//! | `task.rs` | batches for tasks |

mod check;
mod run;
mod settings;
#[cfg(feature = "tokio")]
mod task;

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal as _};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use pipewright::Signal;

use crate::driver::{BatchError, Config, Driver, LogSettings, StartRules};
use crate::executor::{Containing, Executor, JobAttributes, Local, LocalSettings, Machines};
use crate::job::{Job, Template};
use crate::jobserver::JobserverMode;
use crate::output::{OutputOptions, TagStyle, TagStyles};
use crate::scheduler::{self, Limits, ResourceKind, RetryPolicy};
use crate::source::InputError;
use crate::vocabulary::{HaltRule, RetryOn};
pub use crate::watch::ProgressKind;
use crate::watch::{BatchFacts, Screen, WatchSettings, Watchers};
pub use check::CheckError;
pub use run::{Run, Summary};
#[cfg(feature = "tokio")]
pub use task::AsyncRun;

/// Settings of a batch: jobs to run, some of them at the same time.
///
/// ```
/// use pipewright_batch::{Batch, Job};
///
/// let jobs = (1..=20).map(|number| Job::new("test").arg(number.to_string()).args(["-ne", "7"]));
/// let summary = Batch::new().jobs(4).run(jobs)?;
/// assert_eq!((summary.succeeded, summary.failed), (19, 1));
/// assert_eq!(summary.exit_code(), 123);
/// # Ok::<(), pipewright_batch::BatchError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a batch does nothing until `run` or `start` is called"]
pub struct Batch {
    /// The settings of the driver. [`into_config`](Self::into_config) adds what follows from several of them.
    config: Config,
    env: Vec<(OsString, OsString)>,
    watch: WatchSettings,
    local: LocalSettings,
    /// `None`: this machine.
    nodes: Option<Arc<dyn Machines>>,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch::new()
    }
}

impl Batch {
    /// Creates a batch that runs as many jobs at once as this process may use processors.
    pub fn new() -> Batch {
        let processors = thread::available_parallelism().map_or(1, |count| count.get());
        let slots = u32::try_from(processors).ok().and_then(NonZeroU32::new);
        Batch {
            config: Config {
                scheduler: scheduler::Config {
                    limits: Limits {
                        slots: slots.unwrap_or(NonZeroU32::MIN),
                        memory_bytes: None,
                        named: Vec::new(),
                    },
                    retry: RetryPolicy {
                        on: RetryOn::USUAL.iter().map(|failure| failure.class()).collect(),
                        delay: Duration::from_secs(1),
                        max_delay: Duration::from_secs(300),
                        jitter_percent: 50,
                    },
                    halt: None,
                    total: None,
                    max_lost: 2,
                    spaced: false,
                    read_ahead: scheduler::LEAST_READ_AHEAD,
                    capacity: None,
                    seed: 0,
                },
                retries: 0,
                retry_on: RetryOn::USUAL.to_vec(),
                learned_memory: Arc::default(),
                once: false,
                timeout: None,
                batch_timeout: None,
                starts: StartRules::default(),
                log: None,
                output: OutputOptions::default(),
                jobserver: JobserverMode::default(),
                is_alone: false,
                current_dir: None,
                env: Arc::default(),
                send: Vec::new(),
                fetch: Vec::new(),
            },
            env: Vec::new(),
            watch: WatchSettings::default(),
            local: LocalSettings::default(),
            nodes: None,
        }
    }

    /// Sets the number of jobs that run at once, the *slots*; 0 counts as 1.
    #[doc(alias = "concurrency")]
    pub fn jobs(mut self, count: u32) -> Batch {
        self.config.scheduler.limits.slots = NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
        self
    }

    /// Sets the part that the batch takes in GNU make's jobserver. A job takes one token for each of its
    /// [`cpus`](Job::cpus).
    pub fn jobserver(mut self, mode: JobserverMode) -> Batch {
        self.config.jobserver = mode;
        self
    }

    /// Sets how much of that resource there is. Jobs that use it ([`Job::resource`]) run at the same time only
    /// while there is enough of it.
    pub fn resource(mut self, name: impl Into<String>, count: u32) -> Batch {
        let (name, named) = (name.into().into_boxed_str(), &mut self.config.scheduler.limits.named);
        named.retain(|kind| kind.name != name);
        named.push(ResourceKind { name, capacity: count });
        self
    }

    /// Sets the number of times that a failed job is run again, for jobs that name none.
    pub fn retries(mut self, retries: u32) -> Batch {
        self.config.retries = retries;
        self
    }

    /// Sets the failures after which a job is run again. The default is [`RetryOn::USUAL`].
    pub fn retry_on(mut self, failures: impl IntoIterator<Item = RetryOn>) -> Batch {
        self.config.retry_on = failures.into_iter().collect();
        self.config.scheduler.retry.on =
            self.config.retry_on.iter().map(|failure| failure.class()).collect();
        self
    }

    /// Sets the delay before the first retry. It doubles with each further retry, up to `max`. A random part of up to a
    /// half is taken off, so that jobs that failed together are not tried again together.
    pub fn retry_delay(mut self, delay: Duration, max: Duration) -> Batch {
        let retry = &mut self.config.scheduler.retry;
        (retry.delay, retry.max_delay) = (delay, max.max(delay));
        self
    }

    /// Sets the rule for jobs without one of their own: an interrupted job is not run again by itself.
    pub fn once(mut self, once: bool) -> Batch {
        self.config.once = once;
        self
    }

    /// Sets the time after which a job is stopped, for jobs that name none.
    pub fn timeout(mut self, timeout: Duration) -> Batch {
        self.config.timeout = Some(timeout);
        self
    }

    /// Sets the time after which the whole batch is stopped.
    pub fn batch_timeout(mut self, timeout: Duration) -> Batch {
        self.config.batch_timeout = Some(timeout);
        self
    }

    /// Sets the time without output after which a job is stopped.
    pub fn idle_timeout(mut self, timeout: Duration) -> Batch {
        self.local.idle_timeout = Some(timeout);
        self
    }

    /// Sets the number of bytes of one stream after which a job is stopped.
    pub fn limit_bytes(mut self, bytes: usize) -> Batch {
        self.local.limit_bytes = Some(bytes);
        self
    }

    /// Sets the signal that requests a stop, and the time between it and the kill.
    pub fn stop_with(mut self, signal: Signal, grace: Duration) -> Batch {
        (self.local.stop_signal, self.local.kill_grace) = (signal, grace);
        self
    }

    /// Sets the processes that a stop reaches, and that may not outlive a job.
    pub fn contain(mut self, contain: Containing) -> Batch {
        self.local.contain = contain;
        self
    }

    /// Ends the batch early, once that many jobs have failed or succeeded: nothing new starts then. If enough jobs have
    /// succeeded, the batch has.
    ///
    /// ```
    /// # use pipewright_batch::Batch;
    /// let batch = Batch::new().halt("now,fail=1".parse()?);
    /// # Ok::<(), pipewright_batch::ParseHaltRuleError>(())
    /// ```
    pub fn halt(mut self, rule: HaltRule) -> Batch {
        self.config.scheduler.halt = Some(rule);
        self
    }

    /// Sets the pause after each start: `--delay` of GNU parallel.
    pub fn start_delay(mut self, pause: Duration) -> Batch {
        self.config.starts.pause = Some(pause).filter(|pause| !pause.is_zero());
        self.config.scheduler.spaced = self.config.starts.pause.is_some();
        self
    }

    /// Starts no job unless fewer threads run on this machine, or are ready to run: `--load` of GNU parallel. The
    /// machine is looked at once a second; between two looks, so many more jobs may run as there is room for.
    ///
    /// On Linux these are the threads of now. On macOS it is the average of a minute, and elsewhere and with
    /// [`nodes`](Self::nodes) it is not known: an event says so, and jobs start whatever the load is.
    pub fn max_load(mut self, load: f64) -> Batch {
        self.config.starts.max_load = Some(load);
        self
    }

    /// Starts no job unless so much memory is free: `--memfree` of GNU parallel. The machine is looked at once a
    /// second. Jobs that run go on; [`Job::mem_bytes`] is for those that can say what they need.
    pub fn min_free_memory(mut self, bytes: u64) -> Batch {
        self.config.starts.min_free_bytes = Some(bytes);
        self
    }

    /// Sets the number of jobs that are read before they can start, if it is less than the usual 64: they, and those
    /// that another thread has read (up to 256, or 16 MiB of their inputs), are held in memory. 0 counts as 1.
    ///
    /// Whatever the number, no more are read while those that wait, for a slot or for a retry, hold 16 MiB of inputs.
    pub fn read_ahead(mut self, jobs: u32) -> Batch {
        self.config.scheduler.read_ahead =
            usize::try_from(jobs).unwrap_or(usize::MAX).min(scheduler::LEAST_READ_AHEAD);
        self
    }

    /// Sets the number of nodes that a job may lose: with the last one the job fails. Before that it is started again
    /// elsewhere, which counts as no retry. The default is 2; 0 counts as 1.
    pub fn max_lost(mut self, count: u32) -> Batch {
        self.config.scheduler.max_lost = count;
        self
    }

    /// Sets the working directory of jobs that state none.
    pub fn current_dir(mut self, dir: impl Into<PathBuf>) -> Batch {
        self.config.current_dir = Some(dir.into());
        self
    }

    /// Sets what every job starts with: an empty environment, a user, a niceness, a umask, and limits of each job's
    /// tree. A job's own memory takes the place of that in the limits. Limits need [`Containing::Tree`].
    ///
    /// ```
    /// use pipewright_batch::{Batch, JobAttributes};
    /// let mut attributes = JobAttributes::default();
    /// attributes.nice = Some(10);
    /// let batch = Batch::new().attributes(attributes);
    /// ```
    pub fn attributes(mut self, attributes: JobAttributes) -> Batch {
        self.local.attributes = attributes;
        self
    }

    /// Sets a variable in the environment of every job.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Batch {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets what happens with the output of jobs. The default prints it to this process's stdout and stderr, each job's
    /// as a whole when it is over.
    pub fn output(mut self, output: OutputOptions) -> Batch {
        self.config.output = output;
        self
    }

    /// Adds a file that is sent to the node of each job before it starts: `--transferfile` of GNU parallel. One without
    /// placeholders is sent to each node once. The template is of [`Template::parse_text`].
    ///
    /// A relative path is one of this process here, and of the job's directory there. A job whose file is missing does
    /// not start. Needs [`nodes`](Self::nodes).
    pub fn send_file(mut self, file: Template) -> Batch {
        self.config.send.push(file.into());
        self
    }

    /// Adds a file that is fetched from the node of each job when it has ended: `--return` of GNU parallel. It arrives
    /// whole or not at all, and before the job counts as done. A job that succeeded and has not left it has failed, and
    /// runs again in a resumed batch. Needs [`nodes`](Self::nodes).
    pub fn fetch_file(mut self, file: Template) -> Batch {
        self.config.fetch.push(file.into());
        self
    }

    /// Runs the jobs on other machines: the `Nodes` of the crate pipewright-cluster. [`jobs`](Self::jobs) has no effect
    /// then (`Nodes::slots_per_node` has), and no job has a part in a jobserver.
    ///
    /// The batch begins at once, and its jobs start as soon as a node is there. Directories, files and programs are
    /// those of the nodes. What a job prints is printed here.
    pub fn nodes(mut self, nodes: impl Machines + 'static) -> Batch {
        self.nodes = Some(Arc::new(nodes));
        self
    }

    /// Runs all jobs, and returns the counts.
    ///
    /// `jobs` is an iterator of [`Job`], or one of `Result<Job, InputError>` such as [`Jobs`](crate::Jobs). It is read
    /// by a thread of its own, little ahead of the jobs that run. The first error ends the input: the running jobs end,
    /// and the summary has the error.
    ///
    /// # Errors
    /// No more threads or handles are available, or the batch has lost its executor.
    pub fn run<I>(self, jobs: I) -> Result<Summary, BatchError>
    where
        I: IntoIterator<Item: Into<Result<Job, InputError>> + 'static>,
        I::IntoIter: Send + 'static,
    {
        self.start(jobs)?.finish()
    }

    /// Starts to run the jobs. The events of the [`Run`] tell what happens.
    ///
    /// # Errors
    /// No more threads or handles are available.
    pub fn start<I>(self, jobs: I) -> Result<Run, BatchError>
    where
        I: IntoIterator<Item: Into<Result<Job, InputError>> + 'static>,
        I::IntoIter: Send + 'static,
    {
        let executor = self.executor()?;
        self.start_on(executor, jobs)
    }

    /// Starts to run the jobs with another executor. Settings for this machine ([`contain`](Self::contain),
    /// [`idle_timeout`](Self::idle_timeout), [`limit_bytes`](Self::limit_bytes), [`stop_with`](Self::stop_with)) have
    /// no effect.
    ///
    /// # Errors
    /// No more threads or handles are available.
    pub fn start_on<E, I>(self, executor: E, jobs: I) -> Result<Run<E>, BatchError>
    where
        E: Executor,
        I: IntoIterator<Item: Into<Result<Job, InputError>> + 'static>,
        I::IntoIter: Send + 'static,
    {
        let jobs = jobs.into_iter().map(Into::into);
        let facts = self.facts();
        let failed = |(path, source)| BatchError::Report { path, source };
        let mut watchers = Watchers::open(&self.watch, facts).map_err(failed)?;
        let streams = watchers.streams();
        let mut config = self.into_config();
        config.output.tag_styles = tag_styles();
        let driver = Driver::start(config, executor, jobs, streams)?;
        // Not before: the files may be those of a batch that has this log.
        watchers.begin().map_err(failed)?;
        Ok(Run::new(driver, watchers))
    }

    /// Returns the executor.
    fn executor(&self) -> Result<Box<dyn Executor>, BatchError> {
        let has_files = !self.config.send.is_empty() || !self.config.fetch.is_empty();
        match &self.nodes {
            None if has_files => {
                let reason = "files are sent to nodes and fetched from them, and it has none";
                let error = io::Error::new(io::ErrorKind::InvalidInput, reason);
                Err(BatchError::Start(error))
            }
            None => Ok(Box::new(Local::new(self.local.clone()))),
            Some(nodes) => nodes.connect(&self.local).map_err(BatchError::Executor),
        }
    }

    fn facts(&self) -> BatchFacts {
        let log = self.config.log.as_ref();
        let path = log.map(|log| log.path.display().to_string());
        BatchFacts {
            command: log.map(|log| log.facts.description.clone()).unwrap_or_default(),
            slots: self.known_slots(),
            started: SystemTime::now(),
            log: path.filter(|path| !path.is_empty()),
        }
    }

    /// Returns the number of slots before any node has joined.
    fn known_slots(&self) -> u32 {
        if self.nodes.is_some() { 0 } else { self.config.scheduler.limits.slots.get() }
    }

    /// Returns the settings of the driver, with what follows from several of them.
    pub(crate) fn into_config(self) -> Config {
        let (slots, remote) = (self.known_slots(), self.nodes.is_some());
        let mut config = self.config;
        if remote {
            // The slots are those of the nodes, and tokens are for processes of one machine.
            config.scheduler.limits.slots = NonZeroU32::MAX;
            config.scheduler.capacity = Some(0);
            config.jobserver = JobserverMode::Off;
        }
        // Without a path, somebody has only described the batch.
        config.log = config.log.filter(|log| !log.path.as_os_str().is_empty());
        config.output.is_durable = config.log.is_some();
        if let Some(LogSettings { facts, .. }) = &mut config.log {
            (facts.slots, facts.remote, facts.keep_values) = (slots, remote, config.output.tag);
        }
        config.scheduler.seed = seed();
        config.env = self.env.into();
        config
    }
}

/// Returns the ways in which this process's stdout and stderr show tags.
fn tag_styles() -> TagStyles {
    let is_colored = Screen::stderr().colors;
    let style = |is_terminal| match is_terminal {
        true => TagStyle::Column { is_colored },
        false => TagStyle::Tab,
    };
    TagStyles::new(style(io::stdout().is_terminal()), style(io::stderr().is_terminal()))
}

/// Returns a number that differs between two runs, for the random parts of delays.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

impl From<Job> for Result<Job, InputError> {
    fn from(job: Job) -> Self {
        Ok(job)
    }
}
