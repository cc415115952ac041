//! Runs up to millions of commands, some at the same time, with a log that survives any kill.
#![forbid(unsafe_code)]

mod job;
mod journal;
mod plan;
mod scheduler;
mod source;

pub use job::{
    Job, JobId, JobStdin, NotUnicode, ParseJobIdError, Record, Resources, Template, TemplateError,
    shell_quoted,
};
pub use source::{
    InputError, InputErrorKind, InputName, Jobs, List, ListWords, Source, product, split_lists,
};
