//! Jobs for batches of up to millions of commands: templates, lazy sources, and identities.
//!
//! What runs them is under construction: the scheduler and the check of whole inputs are here, and nothing uses them yet.
#![forbid(unsafe_code)]

mod executor;
mod job;
// Most of its tests need pipes that are shared.
#[cfg_attr(
    any(not(test), windows),
    expect(dead_code, unused_imports, reason = "the runner will use it")
)]
mod jobserver;
#[cfg_attr(not(test), expect(dead_code, reason = "the runner will use it"))]
mod plan;
#[cfg_attr(not(test), expect(dead_code, unused_imports, reason = "the runner will use it"))]
mod scheduler;
mod source;

pub use executor::{
    Attempt, AttemptEnd, AttemptKey, AttemptOutcome, Executor, ExecutorEvent, OutputSink,
};
pub use job::{
    Identities, Job, JobId, JobStdin, NotUnicode, ParseJobIdError, Record, Resources, Template,
    TemplateError, shell_quoted,
};
pub use source::{
    InputError, InputErrorKind, InputName, Jobs, List, ListWords, Source, product, split_lists,
};
