//! Batches: many commands, some of them at the same time, with a log that can be resumed.
//!
//! Start at [`Batch`], which runs jobs. [`Job`] is a command with its settings, [`Source`] reads jobs from lines, JSON
//! lines or CSV, and [`Template`] has the placeholders. [`LogView`] reads the log of a batch, also while it runs.
//! docs/batch.md is the tutorial of the tool.
#![forbid(unsafe_code)]
// docs.rs says beside each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod batch;
mod driver;
mod executor;
mod job;
mod jobserver;
mod journal;
mod output;
mod scheduler;
mod source;
mod units;
mod view;
mod vocabulary;
mod watch;

#[cfg(feature = "tokio")]
pub use batch::AsyncRun;
pub use batch::{Batch, CheckError, ProgressKind, Run, Summary};
pub use driver::{BatchError, Control};
pub use executor::{
    Attempt, Containing, Executor, ExecutorEvent, JobAttributes, JobFiles, JobUser, Local,
    LocalSettings, MachineMemory, Machines, NODES_END_WITHIN, NodeFiles, NodeOutput, OutputSink,
    SentFile,
};
pub use job::{
    Identities, Job, JobId, JobStdin, NotUnicode, ParseJobIdError, Record, Resources, Template,
    TemplateError, shell_quoted,
};
pub use jobserver::{JobserverMode, jobs_of_make};
pub use journal::{LogError, LogErrorKind};
#[doc(hidden)]
pub use output::Spooled;
pub use output::{NodeWriter, OutputError, OutputErrorKind, OutputMode, OutputOptions};
pub use source::{
    InputError, InputErrorKind, InputName, Jobs, List, ListWords, Packing, Records, Source,
    product, split_lists,
};
pub use units::{UnitError, parse_duration, parse_size};
pub use view::{JobFilter, LogView, LoggedState, OutputQueryError};
pub use vocabulary::{
    AttemptEnd, AttemptKey, AttemptOutcome, Event, Failure, Halt, HaltAt, HaltRule, JobOutcome,
    ParseHaltRuleError, RetryOn,
};

/// The examples of the README of this crate.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
