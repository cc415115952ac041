//! Settings of the log, of the memory of jobs, and of reports.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Batch, ProgressKind, Run};
use crate::driver::{BatchError, LogSettings};
use crate::executor::Executor;
use crate::journal::{LogError, RunFacts};
use crate::source::Jobs;
use crate::view::LogView;

impl Batch {
    /// Keeps a log of the batch in this file, which must not exist: see `docs/batch-log.md`.
    ///
    /// The log is a SQLite database. It has each attempt before it starts, and each end, so that
    /// [`resume`](Self::resume) can continue the batch after any kind of end, also by SIGKILL or a power cut.
    ///
    /// ```
    /// use pipewright_batch::{Batch, Job};
    /// let dir = std::env::temp_dir().join(format!("batch-log-doc-{}", std::process::id()));
    /// std::fs::create_dir(&dir)?;
    /// let log = dir.join("run.db");
    /// let jobs = || ["true", "false"].map(Job::new);
    /// Batch::new().log(&log).run(jobs())?;
    /// // Nothing runs twice. What has failed can be run again.
    /// let again = Batch::new().log(&log).resume(true).retry_failed(true).run(jobs())?;
    /// assert_eq!((again.succeeded_before, again.failed), (1, 1));
    /// # std::fs::remove_dir_all(dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn log(mut self, path: impl Into<PathBuf>) -> Batch {
        self.log_settings().path = path.into();
        self
    }

    /// Chooses whether to continue the batch of the log. A log that does not exist is begun, and a message says so.
    /// Jobs that ended in an earlier run do not run again, whatever their place in the input. Jobs that were
    /// interrupted run again, except those that run at most [`once`](Self::once).
    ///
    /// Processes of an earlier run that are still alive are killed first.
    pub fn resume(mut self, resume: bool) -> Batch {
        self.log_settings().resume = resume;
        self
    }

    /// Chooses whether to resume the log of another user, or one that other users may write. Its commands run as this
    /// user, so such a log is refused otherwise ([`LogErrorKind::Untrusted`](crate::LogErrorKind::Untrusted)).
    pub fn trust_log(mut self, trust: bool) -> Batch {
        self.log_settings().facts.trust_log = trust;
        self
    }

    /// Chooses whether a resumed batch runs failed jobs again.
    pub fn retry_failed(mut self, retry: bool) -> Batch {
        self.log_settings().retry_failed = retry;
        self
    }

    /// Chooses whether a resumed batch runs jobs again that run at most once, and may have run.
    pub fn rerun_unknown(mut self, rerun: bool) -> Batch {
        self.log_settings().rerun_unknown = rerun;
        self
    }

    /// Describes the batch in its log, for people: the input and the command.
    pub fn describe(mut self, description: impl Into<String>) -> Batch {
        self.log_settings().facts.description = description.into();
        self
    }

    /// Notes in the log how the input can be read again, in words of the caller.
    /// [`LogView::input`](crate::LogView::input) returns it.
    pub fn note_input(mut self, note: impl Into<String>) -> Batch {
        self.log_settings().facts.input = Some(note.into());
        self
    }

    /// Continues the batch of this log with the jobs that the log has, without the input. The log has all that a job
    /// needs to run again, once the input was read to its end.
    ///
    /// [`retry_failed`](Self::retry_failed) and [`rerun_unknown`](Self::rerun_unknown) apply. The settings of the
    /// batch, such as [`timeout`](Self::timeout) and [`env`](Self::env), are those of this batch, and not those of the
    /// earlier run.
    ///
    /// # Errors
    /// The log does not have all jobs ([`LogErrorKind::LacksInput`](crate::LogErrorKind::LacksInput)), an older version
    /// has written it, this process is in another directory than the one that the jobs ran in, and as for
    /// [`start`](Self::start).
    ///
    /// ```
    /// use pipewright_batch::{Batch, Job};
    /// # let dir = std::env::temp_dir().join(format!("resume-log-doc-{}", std::process::id()));
    /// # std::fs::create_dir(&dir)?;
    /// # let log = dir.join("run.db");
    /// Batch::new().log(&log).run(["true", "false"].map(Job::new))?;
    /// let again = Batch::new().retry_failed(true).resume_log(&log)?.finish()?;
    /// assert_eq!((again.succeeded_before, again.failed), (1, 1));
    /// # std::fs::remove_dir_all(dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resume_log(self, path: impl Into<PathBuf>) -> Result<Run, BatchError> {
        let executor = self.executor()?;
        self.resume_log_on(executor, path)
    }

    /// Does the same as [`resume_log`](Self::resume_log) with another executor.
    ///
    /// # Errors
    /// As for [`resume_log`](Self::resume_log).
    pub fn resume_log_on<E: Executor>(
        self,
        executor: E,
        path: impl Into<PathBuf>,
    ) -> Result<Run<E>, BatchError> {
        let mut batch = self.log(path).resume(true);
        let settings = batch.log_settings();
        (settings.facts.from_log, settings.facts.input) = (true, None);
        let jobs = Jobs::of_log(&settings.path);
        batch.start_on(executor, jobs)
    }

    fn log_settings(&mut self) -> &mut LogSettings {
        self.config.log.get_or_insert_with(|| LogSettings {
            path: PathBuf::new(),
            resume: false,
            retry_failed: false,
            rerun_unknown: false,
            facts: RunFacts {
                remote: false,
                description: String::new(),
                tool_version: env!("CARGO_PKG_VERSION").to_owned(),
                slots: 1,
                input: None,
                from_log: false,
                keep_values: false,
                trust_log: false,
            },
        })
    }
}

// The memory of jobs: for all together, and from the log of an earlier run.

impl Batch {
    /// Sets the memory for all jobs together that name their needs ([`mem_bytes`](crate::Job::mem_bytes)), or whose
    /// needs are [learned](Self::learn).
    pub fn memory_bytes(mut self, bytes: u64) -> Batch {
        self.config.scheduler.limits.memory_bytes = Some(bytes);
        self
    }

    /// Reserves memory for jobs that state no [`mem_bytes`](crate::Job::mem_bytes): an eighth more than the most that
    /// the job with the same identity has used in that log. Such a job is not limited. A job that the log does not have
    /// reserves none.
    ///
    /// The log may be that of another batch, or the one that is resumed. It is read once, now.
    ///
    /// # Errors
    /// The log cannot be read.
    ///
    /// ```
    /// use pipewright_batch::{Batch, Job, LogView};
    /// # let dir = std::env::temp_dir().join(format!("batch-learn-doc-{}", std::process::id()));
    /// # std::fs::create_dir(&dir)?;
    /// # let monday = dir.join("monday.db");
    /// let jobs = || ["a", "b", "c"].map(|unit| Job::new("echo").arg(unit));
    /// Batch::new().log(&monday).run(jobs())?;
    /// Batch::new().learn(&LogView::open(&monday)?)?.run(jobs())?;
    /// # std::fs::remove_dir_all(dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn learn(mut self, log: &LogView) -> Result<Batch, LogError> {
        let mut peaks = log.peaks()?;
        for bytes in peaks.values_mut() {
            *bytes = bytes.saturating_add(*bytes / 8);
        }
        self.config.learned_memory = Arc::new(peaks);
        Ok(self)
    }
}

// Settings of progress and of other reports.

impl Batch {
    /// Shows progress on stderr, and messages about jobs that fail. The default is none.
    pub fn progress(mut self, kind: ProgressKind) -> Batch {
        self.watch.progress = Some(kind);
        self
    }

    /// Prints each command on stderr when it starts: `-t` of `xargs`.
    pub fn print_commands(mut self, print: bool) -> Batch {
        self.watch.prints_commands = print;
        self
    }

    /// Writes every event to this file, one JSON object a line: see `docs/json.md`. The file is replaced.
    pub fn events_to(mut self, path: impl Into<PathBuf>) -> Batch {
        self.watch.events = Some(path.into());
        self
    }

    /// Writes a line for each job that ran to this file, in the format of `--joblog` of GNU parallel. The file is
    /// replaced.
    pub fn joblog_to(mut self, path: impl Into<PathBuf>) -> Batch {
        (self.watch.joblog, self.watch.appends_joblog) = (Some(path.into()), false);
        self
    }

    /// Does the same as [`joblog_to`](Self::joblog_to), but adds the lines to what the file has: `--joblog +FILE` of
    /// GNU parallel. A file without lines is a new one. What others may read of the file stays so, whatever
    /// [`private_reports`](Self::private_reports) says.
    pub fn append_joblog_to(mut self, path: impl Into<PathBuf>) -> Batch {
        (self.watch.joblog, self.watch.appends_joblog) = (Some(path.into()), true);
        self
    }

    /// Writes a test case for each job to this file, as JUnit XML. The file is replaced. While the batch runs, it is
    /// whole whenever the batch waits.
    pub fn junit_to(mut self, path: impl Into<PathBuf>) -> Batch {
        self.watch.junit = Some(path.into());
        self
    }

    /// Chooses whether to let no other user read the reports: files of mode 0600 on Unix. They hold what the commands
    /// hold. [`OutputOptions::private`](crate::OutputOptions::private) does the same for the files of jobs.
    pub fn private_reports(mut self, private: bool) -> Batch {
        self.watch.private = private;
        self
    }

    /// Writes trace events to this file, for Perfetto and the browser's `about:tracing`. The file is replaced.
    pub fn trace_to(mut self, path: impl Into<PathBuf>) -> Batch {
        self.watch.trace = Some(path.into());
        self
    }

    /// Writes a page about the batch to this file when it is over: HTML with everything in it. The file is replaced.
    pub fn page_to(mut self, path: impl Into<PathBuf>) -> Batch {
        self.watch.page = Some(path.into());
        self
    }
}
