//! Jobs: what to run, their identity, and templates of commands.
//!
//! | file | contents |
//! |---|---|
//! | this file | a job, its setters and its settings; the values of a record; commands as text for a shell |
//! | `template/` | commands with placeholders |
//! | `identity.rs` | the identity of a job |
//! | `stored.rs` | jobs as the log keeps them |

mod identity;
pub(crate) mod stored;
mod template;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pipewright_os::base::error::OneLine;
use pipewright_os::base::os_text;
use serde::{Deserialize, Serialize};

pub use identity::{Identities, JobId, ParseJobIdError};
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

    /// Returns a text with the values of the record; of a job without one, its command is the value.
    pub(crate) fn text_of(&self, text: &Template, job: u64, slot: u32, command: &str) -> String {
        self.word_of(text, job, slot, command).to_string_lossy().into_owned()
    }

    /// Returns the same as a word, whose bytes are kept.
    pub(crate) fn word_of(&self, text: &Template, job: u64, slot: u32, command: &str) -> OsString {
        let words = match &self.command {
            JobCommand::Template { number, record, .. } => text.words(*number, slot, record),
            _ => text.words(job, slot, &Record::new(command)),
        };
        // Never: each value was a word of the job.
        words.unwrap_or_default().into_iter().collect()
    }

    /// Returns the line for the shell, as it was typed.
    pub(crate) fn shell_line(&self) -> Option<String> {
        let JobCommand::Shell(line) = &self.command else { return None };
        Some(line.to_string_lossy().into_owned())
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

// The setters of a job.

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
    fn from_template(template: Arc<Template>, number: u64, record: Record) -> Job {
        Job::from_command(JobCommand::Template { template, number, record })
    }

    fn from_command(command: JobCommand) -> Job {
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

    /// Sets the memory up to which the job is tried again, each time with twice as much, when it ran out of memory.
    /// Such an attempt does not count as a retry.
    pub fn most_mem_bytes(self, bytes: u64) -> Job {
        self.with(|settings| settings.resources.most_mem_bytes = Some(bytes))
    }

    /// Sets how much of that resource the job takes while it runs. 0 removes the name.
    pub fn resource(self, name: impl Into<String>, count: u32) -> Job {
        self.with(|settings| match count {
            0 => _ = settings.resources.named.remove(&name.into()),
            count => _ = settings.resources.named.insert(name.into(), count),
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

// The settings of a job that have defaults.

/// The settings of a job that have defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Settings {
    name: Option<String>,
    current_dir: Option<PathBuf>,
    /// Sorted, so that the order of the setters is no part of the identity.
    env: BTreeMap<OsString, Option<OsString>>,
    stdin: JobStdin,
    after: Vec<String>,
    resources: Resources,
    timeout: Option<Duration>,
    retries: Option<u32>,
    once: Option<bool>,
}

impl Settings {
    const fn new() -> Settings {
        Settings {
            name: None,
            current_dir: None,
            env: BTreeMap::new(),
            stdin: JobStdin::Null,
            after: Vec::new(),
            resources: Resources::new(),
            timeout: None,
            retries: None,
            once: None,
        }
    }
}

// The resources that a job takes while it runs.

/// The resources that a job takes while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resources {
    /// The number of processors, at least 1.
    pub cpus: u32,
    /// The memory, if the job states it.
    pub mem_bytes: Option<u64>,
    /// The memory up to which the job is tried again with more when it ran out of memory.
    pub most_mem_bytes: Option<u64>,
    /// The amount that the job takes of each resource of the batch, by its name.
    pub named: BTreeMap<String, u32>,
}

impl Resources {
    const fn new() -> Resources {
        Resources { cpus: 1, mem_bytes: None, most_mem_bytes: None, named: BTreeMap::new() }
    }
}

impl Default for Resources {
    /// Returns one processor, and nothing else.
    fn default() -> Resources {
        Resources::new()
    }
}

// The standard input of a job.

/// The standard input of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobStdin {
    /// The null device.
    #[default]
    Null,
    /// These bytes, then the end of input.
    Bytes(#[serde(with = "bytes")] Vec<u8>),
    /// A file, opened when the job starts.
    File(#[serde(with = "path_bytes")] PathBuf),
}

impl JobStdin {
    /// Returns an input of these bytes.
    #[must_use]
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> JobStdin {
        JobStdin::Bytes(bytes.into())
    }

    /// Returns the number of bytes that are held in memory.
    pub(crate) fn len(&self) -> usize {
        match self {
            JobStdin::Bytes(bytes) => bytes.len(),
            JobStdin::Null | JobStdin::File(_) => 0,
        }
    }

    /// Returns an input from this file.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> JobStdin {
        JobStdin::File(path.into())
    }
}

/// Bytes travel as bytes, and not as a list of numbers.
mod bytes {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        Vec::deserialize(from)
    }
}

/// Paths travel as the bytes of `OsStr::as_encoded_bytes`: both sides are the same program.
pub(crate) mod path_bytes {
    use std::path::{Path, PathBuf};

    use pipewright_os::base::os_text::from_encoded_bytes;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(path.as_os_str().as_encoded_bytes())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        let path = from_encoded_bytes(Vec::deserialize(from)?);
        path.map(Into::into).map_err(|_| de::Error::custom("no path of this system"))
    }
}

// The values of one record of an input.

/// The values of one record of an input, such as a line or a row. A record has at least one column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// The values, one after the other: a record of one column, the usual one, takes one allocation.
    bytes: Vec<u8>,
    /// The starts of the second value and those after it.
    starts: Vec<usize>,
}

impl Record {
    /// Makes a record of one column.
    #[must_use]
    pub fn new(value: impl Into<Vec<u8>>) -> Record {
        Record { bytes: value.into(), starts: Vec::new() }
    }

    /// Adds a column.
    #[must_use]
    pub fn and(mut self, value: impl AsRef<[u8]>) -> Record {
        self.begin_column();
        self.extend(value.as_ref());
        self
    }

    /// Returns the number of columns.
    #[must_use]
    pub fn column_count(&self) -> usize {
        self.starts.len() + 1
    }

    /// Returns the value of a column, which are numbered from 0.
    #[must_use]
    pub fn column(&self, index: usize) -> Option<&[u8]> {
        let start = match index.checked_sub(1) {
            None => 0,
            Some(before) => *self.starts.get(before)?,
        };
        let end = self.starts.get(index).copied().unwrap_or(self.bytes.len());
        self.bytes.get(start..end)
    }

    /// Returns the values.
    pub fn columns(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.column_count()).filter_map(|index| self.column(index))
    }

    /// Adds the columns of another record.
    pub(crate) fn append(&mut self, more: &Record) {
        let at = self.bytes.len();
        self.starts.push(at);
        self.starts.extend(more.starts.iter().map(|start| at + start));
        self.bytes.extend_from_slice(&more.bytes);
    }

    /// Begins the next column. An empty one, so far.
    pub(crate) fn begin_column(&mut self) {
        self.starts.push(self.bytes.len());
    }

    /// Adds bytes to the last column.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns all values without anything between them.
    fn all_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

// Bytes of input as words of the operating system.

/// Returns these bytes as a word. On Unix any bytes are one, on Windows UTF-8.
pub(crate) fn os_string(bytes: Vec<u8>) -> Result<OsString, NotUnicode> {
    os_text::from_bytes(bytes).map_err(NotUnicode)
}

/// An error: these bytes cannot be a word on this system, because they are not Unicode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotUnicode(Vec<u8>);

impl NotUnicode {
    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for NotUnicode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy(&self.0);
        write!(f, "not valid UTF-8, so it cannot be an argument here: {}", OneLine(&text))
    }
}

impl std::error::Error for NotUnicode {}

// Commands as text that a shell reads back to the same words.

/// Returns the words as a line for a POSIX shell, which reads it back to exactly these words.
///
/// Words of plain characters stay as they are. The others are put in single quotes. The bytes of a word are kept, so
/// the line is text only if all words are.
///
/// ```
/// use pipewright_batch::shell_quoted;
/// let line = shell_quoted(&["echo".into(), "it's".into(), "a b".into(), "".into()]);
/// assert_eq!(line, br"echo 'it'\''s' 'a b' ''");
/// ```
#[must_use]
pub fn shell_quoted(words: &[OsString]) -> Vec<u8> {
    let mut line = Vec::new();
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            line.push(b' ');
        }
        push_quoted(&mut line, word.as_encoded_bytes(), index == 0);
    }
    line
}

fn push_quoted(line: &mut Vec<u8>, word: &[u8], is_first: bool) {
    let is_plain = !word.is_empty() && word.iter().all(|byte| is_plain(*byte, is_first));
    if is_plain && !(is_first && RESERVED.contains(&word)) {
        line.extend_from_slice(word);
        return;
    }
    line.push(b'\'');
    for byte in word {
        match byte {
            b'\'' => line.extend_from_slice(br"'\''"),
            byte => line.push(*byte),
        }
    }
    line.push(b'\'');
}

/// Returns the words of a line that [`shell_quoted`] has made. `None`: it has not made this one.
fn words_of_quoted(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut words, mut word) = (Vec::new(), Vec::new());
    let mut rest = line;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b' ' => words.push(std::mem::take(&mut word)),
            b'\'' => {
                let end = rest.iter().position(|byte| *byte == b'\'')?;
                word.extend_from_slice(rest.get(..end)?);
                rest = rest.get(end + 1..)?;
            }
            b'\\' => {
                let (quote, after) = rest.split_first().filter(|(quote, _)| **quote == b'\'')?;
                word.push(*quote);
                rest = after;
            }
            plain => word.push(*plain),
        }
    }
    words.push(word);
    Some(words)
}

/// Returns true for a character that no shell gives a meaning. In the first word an equals sign has one: `A=1` is an
/// assignment.
fn is_plain(byte: u8, is_first: bool) -> bool {
    byte.is_ascii_alphanumeric() || b"_-./:,+@".contains(&byte) || (byte == b'=' && !is_first)
}

/// The words of plain characters that are no commands in the first place. Bash and Zsh have more than POSIX.
const RESERVED: [&[u8]; 22] = [
    b"case",
    b"coproc",
    b"do",
    b"done",
    b"elif",
    b"else",
    b"end",
    b"esac",
    b"fi",
    b"for",
    b"foreach",
    b"function",
    b"if",
    b"in",
    b"namespace",
    b"nocorrect",
    b"repeat",
    b"select",
    b"then",
    b"time",
    b"until",
    b"while",
];

#[cfg(test)]
mod tests;

#[cfg(test)]
mod record_tests {
    use super::Record;

    #[test]
    fn columns_are_kept_apart() {
        let record = Record::new("a").and("").and("bc").and("");
        assert_eq!(record.column_count(), 4);
        assert_eq!(record.columns().collect::<Vec<_>>(), [&b"a"[..], b"", b"bc", b""]);
        assert_eq!((record.column(2), record.column(4)), (Some(&b"bc"[..]), None));
        assert_eq!(Record::default().columns().collect::<Vec<_>>(), [b""]);
        assert_ne!(Record::new("ab"), Record::new("a").and("b"));
    }
}
