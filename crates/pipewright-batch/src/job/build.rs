//! The setters of a job.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::settings::Settings;
use super::{Job, JobCommand, JobId, JobStdin, Logged, Record, Template};

impl Job {
    /// Makes a job of this program. No shell is involved, and braces have no meaning.
    pub fn new(program: impl AsRef<OsStr>) -> Job {
        Job::from_command(JobCommand::Program(program.as_ref().to_owned()))
    }

    /// Makes a job of this line, which `sh -c` runs.
    ///
    /// Do not build the line from data: pass data with [`arg`](Self::arg), as `$1`, `$2` and so on, in quotes.
    ///
    /// ```
    /// use pipewright_batch::Job;
    /// let job = Job::shell(r#"sort -- "$1" | uniq -c"#).arg("it's a name");
    /// assert_eq!(job.argv(1)?[3..], ["sh", "it's a name"]);
    /// # Ok::<(), pipewright_batch::NotUnicode>(())
    /// ```
    pub fn shell(line: impl AsRef<OsStr>) -> Job {
        Job::from_command(JobCommand::Shell(line.as_ref().to_owned()))
    }

    /// Makes a job of a checked record.
    pub(super) fn from_template(template: Arc<Template>, number: u64, record: Record) -> Job {
        Job::from_command(JobCommand::Template { template, number, record })
    }

    pub(super) fn from_command(command: JobCommand) -> Job {
        Job { command, args: Vec::new(), settings: None, line: None, logged: None }
    }

    /// Adds an argument, after those of the template if the job has one.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Job {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<I>(mut self, args: I) -> Job
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Names the job, for [`after`](Self::after) of other jobs. It is no part of the job's identity.
    pub fn name(self, name: impl Into<String>) -> Job {
        self.with(|settings| settings.name = Some(name.into()))
    }

    /// Sets the working directory.
    pub fn current_dir(self, dir: impl AsRef<Path>) -> Job {
        self.with(|settings| settings.current_dir = Some(dir.as_ref().to_owned()))
    }

    /// Sets a variable of the environment.
    pub fn env(self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Job {
        self.change_env(name.as_ref(), Some(value.as_ref().to_owned()))
    }

    /// Sets variables of the environment.
    pub fn envs<I, N, V>(self, variables: I) -> Job
    where
        I: IntoIterator<Item = (N, V)>,
        N: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        variables.into_iter().fold(self, |job, (name, value)| job.env(name, value))
    }

    /// Removes a variable from the environment.
    pub fn env_remove(self, name: impl AsRef<OsStr>) -> Job {
        self.change_env(name.as_ref(), None)
    }

    fn change_env(self, name: &OsStr, value: Option<OsString>) -> Job {
        self.with(|settings| {
            settings.env.insert(name.to_owned(), value);
        })
    }

    /// Sets the standard input. The default is null.
    pub fn stdin(self, stdin: JobStdin) -> Job {
        self.with(|settings| settings.stdin = stdin)
    }

    /// Adds a job that has to succeed before this one starts, by its [`name`](Self::name).
    pub fn after(self, name: impl Into<String>) -> Job {
        self.with(|settings| settings.after.push(name.into()))
    }

    /// Sets the number of processors that the job takes. The default is 1, which is also the least: 0 counts as 1.
    pub fn cpus(self, cpus: u32) -> Job {
        self.with(|settings| settings.resources.cpus = cpus.max(1))
    }

    /// Sets the memory that the job takes: it is reserved, and is the limit of the job where this machine can hold one.
    pub fn mem_bytes(self, bytes: u64) -> Job {
        self.with(|settings| settings.resources.mem_bytes = Some(bytes))
    }

    /// Sets the memory up to which the job is tried again, each time with twice as much, when it ran out of memory. That
    /// is no retry.
    pub fn most_mem_bytes(self, bytes: u64) -> Job {
        self.with(|settings| settings.resources.most_mem_bytes = Some(bytes))
    }

    /// Sets the number of tokens of that name that the job takes. 0 removes the name.
    pub fn tokens(self, name: impl Into<String>, count: u32) -> Job {
        self.with(|settings| match count {
            0 => _ = settings.resources.tokens.remove(&name.into()),
            count => _ = settings.resources.tokens.insert(name.into(), count),
        })
    }

    /// Sets the time after which the job is stopped, in place of the batch's.
    pub fn timeout(self, timeout: Duration) -> Job {
        self.with(|settings| settings.timeout = Some(timeout))
    }

    /// Sets the number of times that a failed job is run again, in place of the batch's.
    pub fn retries(self, retries: u32) -> Job {
        self.with(|settings| settings.retries = Some(retries))
    }

    /// Chooses whether an interrupted job must not run again by itself, in place of the batch's rule.
    pub fn once(self, once: bool) -> Job {
        self.with(|settings| settings.once = Some(once))
    }

    /// Notes the line of the input that the job begins on.
    pub(crate) fn on_line(mut self, line: u64) -> Job {
        self.line = NonZeroU64::new(line);
        self
    }

    /// Notes the place of the job in the log that it comes from.
    pub(crate) fn logged_as(mut self, id: JobId, number: u64) -> Job {
        self.logged = Some(Box::new(Logged { id, number }));
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Job {
        change(self.settings.get_or_insert_with(|| Box::new(Settings::new())));
        self
    }
}
