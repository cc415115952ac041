//! Jobs: what to run, their identity, and templates of commands.
//!
//! | file | contents |
//! |---|---|
//! | `build.rs` | the setters of a job |
//! | `settings.rs`, `stdin.rs`, `resources.rs` | the settings that few jobs have |
//! | `template/`, `record.rs` | commands with placeholders, and the values for them |
//! | `identity.rs`, `encoding.rs` | the identity of a job |
//! | `quote.rs` | commands as text for a shell |
//! | `stored/` | jobs as the log keeps them |
//! | `bytes.rs` | bytes of input as words of the system |

mod build;
mod bytes;
mod encoding;
mod identity;
mod quote;
mod record;
mod resources;
mod settings;
mod stdin;
pub(crate) mod stored;
mod template;

use std::ffi::{OsStr, OsString};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use bytes::NotUnicode;
pub(crate) use bytes::os_string;
pub use identity::{Identities, JobId, ParseJobIdError};
pub use quote::shell_quoted;
pub use record::Record;
pub use resources::Resources;
use settings::Settings;
pub use stdin::JobStdin;
pub(crate) use stdin::path_bytes;
pub use template::{Template, TemplateError};

/// A command to run, with its input, its environment, the jobs that it follows and the resources that it takes.
///
/// The names are those of [`std::process::Command`]. The setters take the job by value, so that a closure can return
/// the end of a chain. Nothing is looked up, opened or copied until the job starts.
///
/// ```
/// use pipewright_batch::{Job, JobStdin};
/// use std::time::Duration;
///
/// let fetch = Job::new("curl").args(["-sO", "https://example.org/log"]).name("fetch").retries(3);
/// let pack = Job::new("gzip").arg("-9").arg("log").after("fetch").timeout(Duration::from_secs(60));
/// let count = Job::shell("wc -l | tee lines").stdin(JobStdin::file("log")).after("fetch").cpus(2);
/// let tags: Vec<Job> = (1..=3).map(|tag| Job::new("git").arg("tag").arg(format!("v{tag}"))).collect();
///
/// assert_eq!(pack.argv(1)?, ["gzip", "-9", "log"]);
/// assert_eq!(count.argv(1)?, ["sh", "-c", "wc -l | tee lines"]);
/// assert_eq!(tags[2].argv(1)?, ["git", "tag", "v3"]);
/// assert_eq!(fetch.get_name(), Some("fetch"));
/// # Ok::<(), pipewright_batch::NotUnicode>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a job does nothing until a batch runs it"]
pub struct Job {
    command: JobCommand,
    args: Vec<OsString>,
    /// `None` means the default of each, which most jobs of a large batch have. Keeps those jobs small.
    settings: Option<Box<Settings>>,
    line: Option<NonZeroU64>,
    /// The job is one of a log.
    logged: Option<Box<Logged>>,
}

/// The place of a job in the log that it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Logged {
    pub(crate) id: JobId,
    pub(crate) number: u64,
}

/// The command of a job, before the arguments that were added to it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum JobCommand {
    Program(OsString),
    /// Filled in at the start, because only then the slot is known.
    Template {
        template: Arc<Template>,
        number: u64,
        record: Record,
    },
    /// Run as `sh -c`.
    Shell(OsString),
}

impl Job {
    /// Returns the words to execute. `slot` is the number of the slot that the job runs in, from 1.
    ///
    /// A line for the shell becomes `sh -c LINE`. If it has arguments, `sh` follows as its `$0`, then the arguments.
    ///
    /// # Errors
    /// A value of the record cannot be a word on this system. Jobs that a [`Source`](crate::Source) or a
    /// [`Template`] has made were checked for this.
    pub fn argv(&self, slot: u32) -> Result<Vec<OsString>, NotUnicode> {
        let mut words = match &self.command {
            JobCommand::Program(program) => vec![program.clone()],
            JobCommand::Template { template, number, record } => {
                template.words(*number, slot, record)?
            }
            JobCommand::Shell(line) => {
                let mut words = ["sh", "-c"].map(OsString::from).to_vec();
                words.push(line.clone());
                if !self.args.is_empty() {
                    words.push("sh".into());
                }
                words
            }
        };
        words.extend_from_slice(&self.args);
        Ok(words)
    }

    /// Returns true if the job is a line for the shell.
    #[must_use]
    pub fn is_shell(&self) -> bool {
        matches!(self.command, JobCommand::Shell(_))
    }

    /// Returns the user's name of the job, which `after` of other jobs refers to.
    #[must_use]
    pub fn get_name(&self) -> Option<&str> {
        self.settings().name.as_deref()
    }

    /// Returns the working directory, if the job has one of its own.
    #[must_use]
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.settings().current_dir.as_deref()
    }

    /// Returns the changes to the environment, sorted by name. `None` means that the variable is removed.
    pub fn get_envs(&self) -> impl ExactSizeIterator<Item = (&OsStr, Option<&OsStr>)> {
        self.settings().env.iter().map(|(name, value)| (name.as_os_str(), value.as_deref()))
    }

    /// Returns the standard input.
    #[must_use]
    pub fn get_stdin(&self) -> &JobStdin {
        &self.settings().stdin
    }

    /// Returns the names of the jobs that have to succeed first.
    #[must_use]
    pub fn get_after(&self) -> &[String] {
        &self.settings().after
    }

    /// Returns the resources that the job takes while it runs.
    #[must_use]
    pub fn get_resources(&self) -> &Resources {
        &self.settings().resources
    }

    /// Returns the time after which the job is stopped. `None`: the batch's.
    #[must_use]
    pub fn get_timeout(&self) -> Option<Duration> {
        self.settings().timeout
    }

    /// Returns the number of times that a failed job is run again. `None`: the batch's.
    #[must_use]
    pub fn get_retries(&self) -> Option<u32> {
        self.settings().retries
    }

    /// Returns true if an interrupted job must not run again by itself. `None`: the batch's rule.
    #[must_use]
    pub fn get_once(&self) -> Option<bool> {
        self.settings().once
    }

    /// Returns the line of the input that the job begins on, if it came from one with lines.
    #[must_use]
    pub fn get_line(&self) -> Option<u64> {
        self.line.map(NonZeroU64::get)
    }

    /// Returns the values of the record that a template was filled with, separated by spaces.
    pub(crate) fn record_text(&self) -> Option<String> {
        let JobCommand::Template { record, .. } = &self.command else { return None };
        let values = record.columns().map(String::from_utf8_lossy);
        Some(values.collect::<Vec<_>>().join(" "))
    }

    /// Returns the place of the job in the log that it comes from.
    pub(crate) fn get_logged(&self) -> Option<Logged> {
        self.logged.as_deref().copied()
    }

    fn settings(&self) -> &Settings {
        static DEFAULT: Settings = Settings::new();
        self.settings.as_deref().unwrap_or(&DEFAULT)
    }
}

/// Compares everything but the line of the input, and the place in a log.
impl PartialEq for Job {
    fn eq(&self, other: &Job) -> bool {
        self.command == other.command
            && self.args == other.args
            && self.settings() == other.settings()
    }
}

impl Eq for Job {}

#[cfg(test)]
mod tests;
