//! Commands joined by pipes: the type and its setters. The verbs are in `verbs.rs`.

mod child;
mod end;
mod start;
mod verbs;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::BitOr;

pub use child::PipelineChild;
pub use end::{PipelineCapture, PipelineOutput, Pipelined, StageEnd};

use crate::command::Command;
use crate::run::{OpenForeground, RunSettings, on_demand, option_setters};

/// Commands that run at the same time, each with its stdout connected to the next one's stdin by a kernel pipe.
///
/// The data between two stages does not pass through this process. This process keeps no end of those pipes, so each
/// stage sees the end of its input and gets SIGPIPE, as in a shell.
///
/// Make one with `|`, [`Command::pipe`] or from a list, and run it with the verbs of [`Command`]. Commands that are
/// borrowed in the expression stay borrowed, so chains of setters work as usual. A pipeline that you keep has to
/// own its commands: see [`Command::owned`].
///
/// # Streams
/// The first stage's stdin and the last stage's stdout are set on their commands, with the verb's defaults. A
/// stream between two stages cannot be set (except to [`piped`](crate::Stdio::piped), which it is anyway). The
/// stderr of a stage is set on its command. All stages whose stderr passes through this process share one pipe, so
/// that its output keeps its exact order; either all of them are teed or none. With
/// [`merge_stderr`](Command::merge_stderr), a stage's stderr goes to the next stage too.
///
/// # Status
/// The status of a pipeline is that of the right-most failed stage, or of the last stage if none failed. A stage
/// before the last that ended by SIGPIPE (or exited with 141, a shell's code for that) has not failed: the later
/// stage had read all it needed. [`pipefail(false)`](Self::pipefail) selects sh's rule: the status of the last
/// stage.
///
/// # Settings
/// Settings of a whole run (timeouts, limits, `cancel` and so on) are set on the pipeline and apply to all of it. A
/// stop reaches every stage and its descendants, last stage first, so that no stage mistakes a stopped writer for
/// the end of its input. A command that has such a setting itself is refused as a stage. Settings of one child
/// (environment, directory, user, group, inherited handles) are set on its command.
///
/// ```
/// use pipewright::Command;
/// use std::time::Duration;
///
/// let text = (Command::new("printf").arg(r"b\na\nb\n")
///     | Command::new("sort")
///     | Command::new("uniq").arg("-c"))
/// .timeout(Duration::from_secs(10))
/// .read()?;
/// assert_eq!(text.split_whitespace().collect::<Vec<_>>(), ["1", "a", "2", "b"]);
/// # Ok::<(), pipewright::Error>(())
/// ```
#[must_use = "a pipeline does nothing until a verb such as `status` or `capture` is called"]
pub struct Pipeline<'a> {
    stages: Vec<Stage<'a>>,
    options: RunSettings,
    pipefail: bool,
    foreground: Option<OpenForeground>,
}

/// A command in a [`Pipeline`], owned or borrowed. [`Command`] and `&mut Command` convert to it.
#[derive(Debug)]
pub struct Stage<'a>(StageCommand<'a>);

#[derive(Debug)]
enum StageCommand<'a> {
    Owned(Box<Command>),
    Borrowed(&'a mut Command),
}

impl<'a> Pipeline<'a> {
    /// Makes a pipeline of these commands. If there are none, its verbs fail.
    ///
    /// ```
    /// use pipewright::{Command, Pipeline};
    /// let mut filters = vec![Command::new("echo")];
    /// filters.extend((0..20).map(|_| Command::new("cat")));
    /// assert_eq!(Pipeline::new(filters).read()?, "");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn new(stages: impl IntoIterator<Item: Into<Stage<'a>>>) -> Pipeline<'a> {
        Pipeline {
            stages: stages.into_iter().map(Into::into).collect(),
            options: RunSettings::default(),
            pipefail: true,
            foreground: None,
        }
    }

    /// Appends a stage, like `|`.
    pub fn pipe(mut self, next: impl Into<Stage<'a>>) -> Pipeline<'a> {
        self.stages.push(next.into());
        self
    }

    /// Returns the pipeline by value, to end a chain of setters. Leaves `self` without stages. See
    /// [`Command`](Command#keeping-or-returning-a-command) for the compiler errors that this avoids.
    ///
    /// ```
    /// use pipewright::{Command, Pipeline};
    /// use std::time::Duration;
    /// fn sorted(text: &str) -> Pipeline<'static> {
    ///     (Command::new("printf").arg(text).owned() | Command::new("sort"))
    ///         .timeout(Duration::from_secs(10))
    ///         .owned()
    /// }
    /// assert_eq!(sorted(r"b\na\n").read()?, "a\nb");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[doc(alias = "take")]
    #[doc(alias = "build")]
    pub fn owned(&mut self) -> Pipeline<'a> {
        std::mem::replace(self, Pipeline::new(std::iter::empty::<Stage<'a>>()))
    }

    /// Returns the commands, from first to last.
    pub fn stages(&self) -> impl ExactSizeIterator<Item = &Command> {
        self.stages.iter().map(Stage::command)
    }

    /// Sets whether any failed stage makes the pipeline fail (the default), or only the last one, as in sh.
    ///
    /// ```
    /// use pipewright::Command;
    /// let mut pipeline = Command::new("false") | Command::new("true");
    /// assert_eq!(pipeline.status()?.code(), Some(1));
    /// assert_eq!(pipeline.pipefail(false).status()?.code(), Some(0));
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn pipefail(&mut self, pipefail: bool) -> &mut Self {
        self.pipefail = pipefail;
        self
    }

    /// Makes the pipeline the terminal's foreground job while it runs, as a shell does: see [`Command::foreground`]. Stages with
    /// their own group ([`Command::own_group`]) share one then, which the first stage leads, because only one group has the
    /// terminal.
    ///
    /// # Platform
    /// Those of [`Command::foreground`]. Windows: no effect.
    ///
    /// ```no_run
    /// use pipewright::Command;
    /// let log = Command::new("git").args(["log", "--color"]).own_group().owned();
    /// let pager = Command::new("less").arg("-R").own_group().owned();
    /// (log | pager).foreground().status()?;
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn foreground(&mut self) -> &mut Self {
        self.foreground = Some(on_demand::OPEN_FOREGROUND);
        self
    }

    fn programs(&self) -> Vec<OsString> {
        self.stages().map(|command| command.get_program().to_owned()).collect()
    }
}

option_setters!(Pipeline<'_>);

/// Returns the names of all stages, for errors.
fn join_names(programs: &[OsString]) -> OsString {
    programs.join(OsStr::new(" | "))
}

impl Stage<'_> {
    pub(crate) fn command(&self) -> &Command {
        match &self.0 {
            StageCommand::Owned(command) => command,
            StageCommand::Borrowed(command) => command,
        }
    }

    pub(crate) fn command_mut(&mut self) -> &mut Command {
        match &mut self.0 {
            StageCommand::Owned(command) => command,
            StageCommand::Borrowed(command) => command,
        }
    }
}

impl Command {
    /// Connects this command's stdout to the next command's stdin: see [`Pipeline`].
    ///
    /// The result borrows this command, and the next one if it is a reference. For a pipeline that owns its
    /// commands, use `first | second` or [`Pipeline::new`], with [`owned`](Self::owned) at the end of a chain.
    ///
    /// ```
    /// use pipewright::Command;
    /// let count = Command::new("printf").arg(r"1\n2\n").pipe(Command::new("wc").arg("-l")).read()?;
    /// assert_eq!(count.trim(), "2");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[doc(alias = "|")]
    #[doc(alias = "pipeline")]
    pub fn pipe<'a>(&'a mut self, next: impl Into<Stage<'a>>) -> Pipeline<'a> {
        Pipeline::new([self]).pipe(next)
    }
}

impl From<Command> for Stage<'_> {
    fn from(command: Command) -> Self {
        Stage(StageCommand::Owned(Box::new(command)))
    }
}

impl<'a> From<&'a mut Command> for Stage<'a> {
    fn from(command: &'a mut Command) -> Self {
        Stage(StageCommand::Borrowed(command))
    }
}

impl<'a, S: Into<Stage<'a>>> FromIterator<S> for Pipeline<'a> {
    fn from_iter<I: IntoIterator<Item = S>>(stages: I) -> Self {
        Pipeline::new(stages)
    }
}

impl BitOr<Command> for Command {
    type Output = Pipeline<'static>;

    fn bitor(self, next: Command) -> Pipeline<'static> {
        Pipeline::new([self]).pipe(next)
    }
}

impl<'a> BitOr<&'a mut Command> for Command {
    type Output = Pipeline<'a>;

    fn bitor(self, next: &'a mut Command) -> Pipeline<'a> {
        Pipeline::new([self]).pipe(next)
    }
}

impl<'a, S: Into<Stage<'a>>> BitOr<S> for &'a mut Command {
    type Output = Pipeline<'a>;

    fn bitor(self, next: S) -> Pipeline<'a> {
        Pipeline::new([self]).pipe(next)
    }
}

impl<'a, S: Into<Stage<'a>>> BitOr<S> for Pipeline<'a> {
    type Output = Pipeline<'a>;

    fn bitor(self, next: S) -> Pipeline<'a> {
        self.pipe(next)
    }
}

impl fmt::Debug for Pipeline<'_> {
    /// Formats the commands with their own `Debug`; secret arguments are `***`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.stages()).finish()
    }
}

impl fmt::Display for Pipeline<'_> {
    /// Formats the pipeline as typed in a shell, on one line. Secret arguments are `***`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, command) in self.stages().enumerate() {
            let bar = if index == 0 { "" } else { " | " };
            write!(f, "{bar}{command}")?;
        }
        Ok(())
    }
}
