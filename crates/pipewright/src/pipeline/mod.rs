//! Commands joined by pipes: the type and how it is put together. The verbs stand in `verbs.rs`.

mod child;
mod end;
mod start;
mod streams;
#[cfg(feature = "tokio")]
mod task;
mod verbs;
mod wait;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::BitOr;

pub use child::PipelineChild;
pub use end::{PipelineCapture, PipelineOutput, Pipelined, StageEnd};

use crate::command::Command;
use crate::run::{Options, option_setters};

/// Commands that run at the same time, the stdout of each joined to the stdin of the next by one
/// pipe of the kernel: no byte between two stages passes through this process, which keeps no end
/// of those pipes, so that each stage sees the end of its input and gets SIGPIPE as in a shell.
///
/// Made by `|`, by [`Command::pipe`] or from a list; run by the verbs of [`Command`]. Commands are
/// borrowed where they are borrowed in the expression, so that the usual chains work as they are;
/// a pipeline that is to be kept has to own its commands, for which there is [`Command::owned`].
///
/// # Streams
/// The stdin of the first stage and the stdout of the last are what their commands say, with the
/// defaults of the verb. A stream at a joint cannot be set (except to [`piped`](crate::Stdio::piped),
/// which it is). The stderr of a stage is what its command says; all that pass through us
/// share one pipe, so that what the stages write there keeps its exact order; either all of these
/// are teed or none. With [`merge_stderr`](Command::merge_stderr) a stage's stderr goes into the
/// next stage as well.
///
/// # Status
/// The status of a pipeline is that of the right-most stage that failed, or the last one's where
/// none did. A stage other than the last that SIGPIPE ended (or that exited with 141, as a shell
/// does then) has not failed: a later stage had read all that it wanted.
/// [`pipefail(false)`](Self::pipefail) is sh's rule, the status of the last.
///
/// # Rules
/// Timeouts, limits, `cancel` and the rest of what is about a whole run are set on the pipeline and
/// hold for all of it: a stop reaches every stage and its descendants, the last stage first, so that
/// none takes a writer that was stopped for the end of its input. A command that has such a setting
/// of its own is refused as a stage. What is about one child (environment, directory, user, group,
/// inherited handles) is set on its command.
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
    options: Options,
    pipefail: bool,
}

/// A command in a [`Pipeline`], owned or borrowed: what [`Command`] and `&mut Command` convert to.
#[derive(Debug)]
pub struct Stage<'a>(StageCommand<'a>);

#[derive(Debug)]
enum StageCommand<'a> {
    Owned(Box<Command>),
    Borrowed(&'a mut Command),
}

impl<'a> Pipeline<'a> {
    /// A pipeline of these commands. Without any, its verbs fail.
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
            options: Options::default(),
            pipefail: true,
        }
    }

    /// The same pipeline with one more stage: as `|`.
    pub fn pipe(mut self, next: impl Into<Stage<'a>>) -> Pipeline<'a> {
        self.stages.push(next.into());
        self
    }

    /// Returns the pipeline by value, at the end of a chain of setters. The pipeline it is called
    /// on is left without stages. See
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

    /// The commands, from the first to the last.
    pub fn stages(&self) -> impl ExactSizeIterator<Item = &Command> {
        self.stages.iter().map(Stage::command)
    }

    /// Sets whether any stage that failed makes the pipeline fail, which is the default, or only the last one, as in sh.
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

    fn programs(&self) -> Vec<OsString> {
        self.stages().map(|command| command.get_program().to_owned()).collect()
    }
}

option_setters!(Pipeline<'_>);

/// Returns the name of all stages, for errors.
fn joined(programs: &[OsString]) -> OsString {
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
    /// Joins this command's stdout to the stdin of the next one: see [`Pipeline`].
    ///
    /// It borrows this command, and the next one where that is borrowed. A pipeline that is to be
    /// kept owns them: `first | second`, or [`Pipeline::new`], and [`owned`](Self::owned) at the end
    /// of a chain.
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
    /// Each command as it prints itself, secret arguments as `***`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.stages()).finish()
    }
}

impl fmt::Display for Pipeline<'_> {
    /// As one would type it in a shell, on one line. Secret arguments are `***`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, command) in self.stages().enumerate() {
            let bar = if index == 0 { "" } else { " | " };
            write!(f, "{bar}{command}")?;
        }
        Ok(())
    }
}
