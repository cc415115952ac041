//! Jobs for batches of up to millions of commands: templates, lazy sources, and identities.
//!
//! What runs them is under construction: the scheduler and the check of whole inputs are here, and nothing uses them yet.
#![forbid(unsafe_code)]

mod batch;
mod driver;
mod event;
mod executor;
mod job;
// Most of its tests need pipes that are shared.
#[cfg_attr(
    any(not(test), windows),
    expect(dead_code, unused_imports, reason = "the runner will use it")
)]
mod jobserver;
mod journal;
mod output;
mod plan;
mod scheduler;
mod source;
mod view;
mod watch;

pub use batch::{Batch, BatchError, CheckError, FailureClass, ProgressKind, Run, Summary};
pub use driver::Control;
pub use event::{Event, Halt, JobState};
pub use executor::{
    Attempt, AttemptEnd, AttemptKey, AttemptOutcome, Containing, Executor, ExecutorEvent, Local,
    LocalSettings, OutputSink,
};
pub use job::{
    Identities, Job, JobId, JobStdin, NotUnicode, ParseJobIdError, Record, Resources, Template,
    TemplateError, shell_quoted,
};
pub use journal::{LogError, LogErrorKind};
pub use output::{OutputError, OutputErrorKind, OutputMode, OutputOptions};
pub use source::{
    InputError, InputErrorKind, InputName, Jobs, List, ListWords, Source, product, split_lists,
};
pub use view::{JobFilter, LogView, LoggedState, OutputQueryError};
