//! Errors of a start.

use std::fmt;
use std::io;

/// The step at which a start failed, and the system's error.
#[derive(Debug)]
pub struct SpawnError {
    /// The step that failed.
    pub step: Step,
    /// The system's error.
    pub source: io::Error,
}

/// A step between the request for a child and its existence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Checking the plan.
    Check(BadInput),
    /// Creating the child: its stack, its handle, the process itself.
    Create,
    /// Creating the containment of its tree: its cgroup, its supervisor.
    Contain,
    /// Holding the limits of its tree.
    TreeLimits,
    /// Joining or creating its process group or session.
    Group,
    /// Making its terminal its controlling one.
    Terminal,
    /// Setting the resource limit with that index in the plan.
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
    /// Redirecting its stdin (0), stdout (1) or stderr (2).
    Stdio(u8),
    /// Passing the inherited handle with that index in the plan.
    Inherit(usize),
    /// Closing the handles that it does not inherit.
    CloseOthers,
    /// Making its life depend on this process.
    ParentDeath,
    /// Taking it out of the job that this process is in.
    Breakaway,
    /// Running the closures of `pre_exec`.
    PreExec,
    /// Loading the program.
    Exec,
}

/// A value that a plan must not contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadInput {
    /// An empty program name.
    EmptyProgram,
    /// A NUL byte in the program's name.
    NulInProgram,
    /// A NUL byte in that argument, counted from 0.
    NulInArg(usize),
    /// An environment variable without a name, with `=` in its name, or with a NUL byte.
    BadVariable(usize),
    /// A NUL byte in the working directory or the root directory.
    NulInDirectory,
    /// The inherited handle with that index is one of the standard three, or has their number.
    InheritIsStdio(usize),
    /// Two inherited handles would have the same number; this is the second.
    InheritTwice(usize),
    /// An argument, counted from 0, for a batch file that `cmd.exe` could interpret as something else.
    BatchArg(usize),
    /// The name of a batch file that `cmd.exe` could interpret as something else.
    BatchName,
    /// `CREATE_SUSPENDED`: the child could not be resumed.
    Suspended,
    /// A child of a [`TreeSlot`](super::TreeSlot) cannot have the option that this setter sets.
    NotInSlot(&'static str),
    /// A limit of the tree that cannot be meant, for this reason.
    TreeLimits(&'static str),
    /// The slot still has a tree.
    SlotInUse,
    /// The slot belongs to the process that this one was forked from.
    SlotOfParent,
}

impl SpawnError {
    pub(super) fn new(step: Step, source: io::Error) -> SpawnError {
        SpawnError { step, source }
    }

    /// Creates the error for an option that this system does not have, named by its setter.
    #[cold]
    pub(super) fn unsupported(option: &str, system: &str) -> SpawnError {
        let message = format!("`{option}` is for {system} only");
        SpawnError::new(Step::Create, io::Error::new(io::ErrorKind::Unsupported, message))
    }

    /// Creates the error for a bad input. Not inlined: one copy for the many places that check something.
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
            BadInput::EmptyProgram => f.write_str("the command is empty"),
            BadInput::NulInProgram => f.write_str("NUL byte in the program's name"),
            BadInput::NulInArg(index) => write!(f, "NUL byte in argument {}", index + 1),
            BadInput::BadVariable(_) => {
                f.write_str("an environment variable has no name, = in its name, or a NUL byte")
            }
            BadInput::NulInDirectory => f.write_str("NUL byte in a directory's name"),
            BadInput::InheritIsStdio(index) => {
                write!(f, "inherit[{index}] would replace a standard handle")
            }
            BadInput::InheritTwice(index) => {
                write!(f, "inherit[{index}] has the same number as an earlier entry")
            }
            BadInput::BatchArg(index) => {
                write!(f, "argument {} is not safe for cmd.exe, which runs batch files", index + 1)
            }
            BadInput::NotInSlot(option) => {
                write!(f, "`{option}` is not supported for a command in a tree slot")
            }
            BadInput::TreeLimits(mistake) => f.write_str(mistake),
            BadInput::SlotInUse => {
                f.write_str("the tree slot is in use: wait for its command, and drop its handle")
            }
            BadInput::SlotOfParent => {
                f.write_str("the tree slot belongs to the process that this one was forked from")
            }
            BadInput::Suspended => f.write_str("CREATE_SUSPENDED: the child could not be resumed"),
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
            Step::Terminal => f.write_str("make its terminal the controlling one"),
            Step::Limit(index) => write!(f, "set resource limit {index}"),
            Step::Umask => f.write_str("set its umask"),
            Step::Nice => f.write_str("set its priority"),
            Step::Chroot => f.write_str("change its root directory"),
            Step::Identity => f.write_str("change its user or groups"),
            Step::CurrentDir => f.write_str("change to its working directory"),
            Step::Stdio(0) => f.write_str("redirect its stdin"),
            Step::Stdio(1) => f.write_str("redirect its stdout"),
            Step::Stdio(_) => f.write_str("redirect its stderr"),
            Step::Inherit(index) => write!(f, "pass it inherit[{index}]"),
            Step::CloseOthers => f.write_str("close the handles that it does not inherit"),
            Step::ParentDeath => f.write_str("make it end with its parent"),
            Step::Breakaway => f.write_str("take it out of this process's job"),
            Step::Contain => f.write_str("contain its process tree"),
            Step::TreeLimits => f.write_str("limit its process tree"),
            Step::PreExec => f.write_str("run its pre_exec closures"),
            Step::Exec => f.write_str("load the program"),
        }
    }
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            // The source has the same text.
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
