//! Why a child was not started.

use std::fmt;
use std::io;

/// The step at which a start failed, and the system's word on it.
#[derive(Debug)]
pub struct SpawnError {
    /// What was being done.
    pub step: Step,
    /// The system's error.
    pub source: io::Error,
}

/// What is done between asking for a child and having it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Checking the plan.
    Check(BadInput),
    /// Making room for the child: its stack, its handle, the child itself.
    Create,
    /// Making what holds its tree together: its cgroup, its supervisor.
    Contain,
    /// Joining or making its process group or session.
    Group,
    /// Setting the resource limit of that number in the plan.
    Limit(usize),
    /// Setting the file mode mask.
    Umask,
    /// Setting the scheduling priority.
    Nice,
    /// Changing the root directory.
    Chroot,
    /// Changing user or groups.
    Identity,
    /// Changing the working directory.
    CurrentDir,
    /// Placing its stdin (0), stdout (1) or stderr (2).
    Stdio(u8),
    /// Placing the inherited handle of that number in the plan.
    Inherit(usize),
    /// Closing what is not inherited.
    CloseOthers,
    /// Tying its life to this process.
    ParentDeath,
    /// Taking it out of the job that this process is in.
    Breakaway,
    /// Running the closures of `pre_exec`.
    PreExec,
    /// Loading the program.
    Exec,
}

/// What a plan cannot contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadInput {
    /// The program has no name.
    EmptyProgram,
    /// A NUL byte in the program's name.
    NulInProgram,
    /// A NUL byte in that argument, counted from 0.
    NulInArg(usize),
    /// A NUL byte in an environment variable's name or value, or `=` in its name.
    BadVariable(usize),
    /// A NUL byte in the working directory or the root directory.
    NulInDirectory,
    /// The inherited handle of that number is one of the standard three, or has their number.
    InheritIsStdio(usize),
    /// Two inherited handles would have the same number; this is the second.
    InheritTwice(usize),
    /// That argument, counted from 0, is for a batch file, and `cmd.exe` could take it for something
    /// else.
    BatchArg(usize),
    /// The name of a batch file that `cmd.exe` could take for something else.
    BatchName,
    /// `CREATE_SUSPENDED`: nobody could resume the child.
    Suspended,
}

impl SpawnError {
    pub(super) fn new(step: Step, source: io::Error) -> SpawnError {
        SpawnError { step, source }
    }

    /// An option that this system does not have, by the name of its setter.
    #[cold]
    pub(super) fn unsupported(option: &str, system: &str) -> SpawnError {
        let words = format!("`{option}` is for {system} only");
        SpawnError::new(Step::Create, io::Error::new(io::ErrorKind::Unsupported, words))
    }

    /// One copy, for the many places that check something.
    #[cold]
    #[inline(never)]
    pub(super) fn bad(input: BadInput) -> SpawnError {
        SpawnError {
            step: Step::Check(input),
            source: io::Error::new(io::ErrorKind::InvalidInput, input.to_string()),
        }
    }
}

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadInput::EmptyProgram => f.write_str("the program has no name"),
            BadInput::NulInProgram => f.write_str("NUL byte in the program's name"),
            BadInput::NulInArg(index) => write!(f, "NUL byte in argument {}", index + 1),
            BadInput::BadVariable(_) => {
                f.write_str("NUL byte in an environment variable, or = in its name")
            }
            BadInput::NulInDirectory => f.write_str("NUL byte in a directory's name"),
            BadInput::InheritIsStdio(index) => {
                write!(f, "inherit[{index}] takes the place of a standard handle")
            }
            BadInput::InheritTwice(index) => {
                write!(f, "inherit[{index}] takes a number that is taken already")
            }
            BadInput::BatchArg(index) => {
                write!(f, "argument {} is not safe for cmd.exe, which runs batch files", index + 1)
            }
            BadInput::Suspended => f.write_str("CREATE_SUSPENDED: nobody could resume the child"),
            BadInput::BatchName => {
                f.write_str("the name of the batch file is not safe for cmd.exe")
            }
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Check(input) => input.fmt(f),
            Step::Create => f.write_str("create the process"),
            Step::Group => f.write_str("set its process group or session"),
            Step::Limit(index) => write!(f, "set resource limit {index}"),
            Step::Umask => f.write_str("set its umask"),
            Step::Nice => f.write_str("set its priority"),
            Step::Chroot => f.write_str("change its root directory"),
            Step::Identity => f.write_str("change its user or groups"),
            Step::CurrentDir => f.write_str("change to its working directory"),
            Step::Stdio(0) => f.write_str("place its stdin"),
            Step::Stdio(1) => f.write_str("place its stdout"),
            Step::Stdio(_) => f.write_str("place its stderr"),
            Step::Inherit(index) => write!(f, "hand it inherit[{index}]"),
            Step::CloseOthers => f.write_str("close what it does not inherit"),
            Step::ParentDeath => f.write_str("tie it to its parent"),
            Step::Breakaway => f.write_str("take it out of our job"),
            Step::Contain => f.write_str("hold its tree together"),
            Step::PreExec => f.write_str("run its pre_exec closures"),
            Step::Exec => f.write_str("load the program"),
        }
    }
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            // The source says the same words.
            Step::Check(_) => self.source.fmt(f),
            step => write!(f, "cannot {step}: {}", self.source),
        }
    }
}

impl std::error::Error for SpawnError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
