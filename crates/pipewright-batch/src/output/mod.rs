//! The output of jobs: grouped or line by line, ordered, tagged, limited, and in a folder a job.
//!
//! The driver calls [`Output::begin`] before each attempt and gives the sink to the executor, [`Output::finish`] after
//! the attempt, and [`Output::settle`] when a job is over, also if it never ran. [`Output::close_by`] prints what is
//! left.
//!
//! **No call waits for a reader.** A thread prints, and only a disk that does not keep up delays a call. What it has
//! not printed yet is in memory, up to 24 MiB for all outputs together, and beyond that in one temporary file without a
//! name, in blocks that are used again; it is in `TMPDIR`, and keeps its largest size until the end. So memory and the
//! number of descriptors are bounded, whatever the number of jobs: the file has one descriptor, and a running attempt
//! with a folder has two. A waiting job takes about 70 bytes beside that.
//!
//! **Nothing stops the batch.** If the temporary file or the folder cannot be written, the rest of that stream is lost,
//! and the [summary](OutputSummary) of the attempt has the error; the attempt's result stands. If stdout or stderr
//! cannot be written, everything later for it is discarded: [`Output::is_reader_gone`] and [`Output::failure`] tell.
//!
//! **Order.** The bytes of a stream keep their order. Stdout and stderr are printed in the order in which they are
//! passed on, which is that of the calls.
//!
//! | file | contents |
//! |---|---|
//! | this file | the output of a batch; the outputs that wait for their turn |
//! | `options.rs` | options and how they combine; errors |
//! | `attempt.rs` | the output of an attempt; one stream; the last lines |
//! | `tags.rs` | tags of lines, for files and for terminals |
//! | `content.rs` | stored output, in counted memory and in the temporary file; the output of one command of `run` |
//! | `kept.rs` | outputs that were not handed over, beside the log |
//! | `queue.rs` | the queue of the thread that prints; that thread |
//! | `folder.rs` | the folder of a job; the facts in `job.json`; files that a node writes |

mod attempt;
mod content;
mod folder;
mod kept;
mod options;
mod queue;
mod tags;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use pipewright::{HeadAndTail, Source};
use pipewright_os::base::private_file::{self, OpenFolder};

use crate::executor::OutputSink;
use crate::job::JobId;
use crate::vocabulary::{AttemptEnd, AttemptKey};

use attempt::AttemptOutput;
pub use content::Spooled;
use content::{Content, Extent, Extents, Memory, Shared, Spool};
pub use folder::NodeWriter;
use folder::{Facts, Folder};
pub(crate) use kept::KeepBeside;
use kept::{Kept, Record};
pub use options::{OutputError, OutputErrorKind, OutputMode, OutputOptions};
use queue::Queue;
pub(crate) use queue::Waker;
pub(crate) use tags::{TagStyle, TagStyles};

/// The facts about a job that its output needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobInfo {
    /// The identity.
    pub(crate) id: JobId,
    /// The user's name of the job.
    pub(crate) name: Option<String>,
    /// The command as a line of text.
    pub(crate) command: String,
    /// The tag of its lines: the argument line, or a filled template. Only read with [`OutputOptions::tag`].
    pub(crate) tag: String,
    /// The folder that an earlier run of the log gave it. `None`: a new one, named by number and identity.
    pub(crate) folder: Option<PathBuf>,
}

/// The output of an attempt that has ended, in numbers.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub(crate) struct OutputSummary {
    /// The number of bytes written to stdout, kept or not.
    pub(crate) stdout_bytes: u64,
    /// The number of bytes written to stderr, kept or not.
    pub(crate) stderr_bytes: u64,
    /// The last lines of stderr, or of stdout if stderr is empty: at most 2 KiB.
    pub(crate) tail: String,
    /// The folder of the job.
    pub(crate) path: Option<PathBuf>,
    /// True if not all bytes were kept, because of [`OutputOptions::max_bytes`] or of an error.
    pub(crate) truncated: bool,
    /// The first error that cost output of this attempt.
    pub(crate) error: Option<OutputError>,
}

/// The output of a batch.
///
/// # Drop
/// Discards what is not printed. Use [`close`](Self::close) to print it.
#[derive(Debug)]
pub(crate) struct Output {
    options: OutputOptions,
    shared: Shared,
    /// The running attempts, by job: a job has one at a time.
    running: BTreeMap<u64, (JobInfo, AttemptOutput)>,
    waiting: Waiting,
    turns: Turns,
    /// The files beside the log.
    kept: Option<Arc<Kept>>,
    jobs_before: usize,
}

/// The output that was not printed at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unprinted {
    Nothing,
    /// The number of outputs that are kept beside the log.
    Kept(usize),
    Discarded,
}

/// Queues what an earlier run has left, and returns the number of its jobs.
fn print_left(mut left: Vec<Record>, queue: &Queue, keep_order: bool) -> usize {
    if keep_order {
        left.sort_by_key(|record| record.job);
    }
    let jobs: BTreeSet<u64> = left.iter().map(|record| record.job).collect();
    left.into_iter().for_each(|record| queue.push_kept(record));
    jobs.len()
}

/// Makes the output directory. One that is there keeps its rights.
fn make_dir(dir: &Path, is_private: bool) -> io::Result<()> {
    if let Some(above) = dir.parent() {
        fs::create_dir_all(above)?;
    }
    private_file::check_link(dir)?;
    match OpenFolder::create(dir, is_private) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        made => made,
    }
}

impl Output {
    /// Starts the thread that prints, makes the output directory, and checks the folder for all of a stream. `waker` is
    /// called on that thread when [`is_reader_gone`](Self::is_reader_gone) or [`failure`](Self::failure) has changed.
    ///
    /// # Errors
    /// [`OutputErrorKind::Thread`], [`OutputErrorKind::Folder`].
    pub(crate) fn new(
        options: OutputOptions,
        stdout: impl Write + Send + 'static,
        stderr: impl Write + Send + 'static,
        waker: Waker,
    ) -> Result<Output, OutputError> {
        if let Some(dir) = &options.dir {
            make_dir(dir, options.private)
                .map_err(|error| OutputError::new(OutputErrorKind::Folder(dir.clone()), error))?;
        }
        if let Some(dir) = options.spill_to.as_ref().filter(|_| options.head_and_tail.is_some()) {
            HeadAndTail::check_folder(dir)
                .map_err(|error| OutputError::new(OutputErrorKind::Folder(dir.clone()), error))?;
        }
        let memory = Memory::new(options.memory_bytes);
        let spool = Spool::new(options.open_spool.clone());
        let kept = options.keep_beside.clone().map(Kept::open);
        let (kept, mut left) = kept.transpose()?.unzip();
        let (kept, left) = (kept.map(Arc::new), left.take().unwrap_or_default());
        // A reader that is slow must not take the memory that running attempts need.
        let queue = Queue::new(&memory, &spool, kept.clone(), options.memory_bytes / 3);
        let jobs_before = print_left(left, &queue, options.keep_order);
        queue::start_writer(queue.clone(), stdout, stderr, waker)?;
        Ok(Output {
            options,
            waiting: Waiting::new(&spool, kept.clone()),
            kept,
            jobs_before,
            shared: Shared { memory, spool, queue },
            running: BTreeMap::new(),
            turns: Turns::new(),
        })
    }

    /// Returns the number of jobs of an earlier run whose output is printed now, because that run has not.
    pub(crate) fn jobs_before(&self) -> usize {
        self.jobs_before
    }

    /// Returns a function that puts on disk what is kept beside the log, if there is something that was not printed.
    pub(crate) fn keeper(&self) -> Option<Arc<dyn Fn() + Send + Sync>> {
        let (kept, queue) = (Arc::clone(self.kept.as_ref()?), Arc::clone(&self.shared.queue));
        Some(Arc::new(move || {
            queue.keep();
            kept.sync();
        }))
    }

    /// Begins an attempt. An earlier one of the job that is not printed yet is discarded, also one that was not
    /// finished.
    ///
    /// An error of the folder is reported by [`finish`](Self::finish).
    pub(crate) fn begin(&mut self, key: AttemptKey, job: JobInfo) -> Box<dyn OutputSink> {
        self.waiting.remove(key.job);
        let folder = self.options.dir.as_ref().map(|dir| {
            let new = || dir.join(folder::name(key.job, job.id));
            Folder::begin(job.folder.clone().unwrap_or_else(new), self.options.private)
        });
        let attempt = AttemptOutput::new(&self.shared, &self.options, (key.job, &job.tag), folder);
        if !self.options.keep_order || key.job == self.turns.next() {
            attempt.go_live();
        }
        let sink = attempt.sink();
        if let Some((_, earlier)) = self.running.insert(key.job, (job, attempt)) {
            drop(earlier.finish());
        }
        sink
    }

    /// Ends an attempt. `keep` is false if the job is run again: then output that is not printed yet is discarded, and
    /// `job.json` is not written. An attempt that was not begun has an empty summary.
    pub(crate) fn finish(&mut self, end: &AttemptEnd, keep: bool) -> OutputSummary {
        let Some((job, attempt)) = self.running.remove(&end.key.job) else {
            return OutputSummary {
                stdout_bytes: 0,
                stderr_bytes: 0,
                tail: String::new(),
                path: None,
                truncated: false,
                error: None,
            };
        };
        let mut output = attempt.finish();
        let path = output.folder.take().map(|folder| {
            if !keep {
                return folder.into_path();
            }
            folder.finish(&Facts::new(&job, end, &output)).unwrap_or_else(|(path, error)| {
                output.error.get_or_insert(error);
                path
            })
        });
        let is_printed = self.options.mode != OutputMode::OnFailure || !end.outcome.is_success();
        if keep && is_printed {
            self.waiting.add(end.key.job, output.stored);
        }
        OutputSummary {
            stdout_bytes: output.stdout_bytes,
            stderr_bytes: output.stderr_bytes,
            tail: output.tail,
            path,
            truncated: output.is_truncated,
            error: output.error,
        }
    }

    /// Settles a job: it is over, or will not run, and its kept output is printed when its turn comes.
    pub(crate) fn settle(&mut self, job: u64) {
        if !self.options.keep_order {
            return self.waiting.print(job, &self.shared.queue);
        }
        self.settle_all(job..job.saturating_add(1));
    }

    /// Skips the turns of numbers that no job has.
    pub(crate) fn skip(&mut self, jobs: Range<u64>) {
        if self.options.keep_order && !jobs.is_empty() {
            self.settle_all(jobs);
        }
    }

    fn settle_all(&mut self, jobs: Range<u64>) {
        let before = self.turns.next();
        self.turns.settle(jobs);
        let next = self.turns.next();
        if next != before {
            self.waiting.print_before(next, &self.shared.queue);
            if let Some((_, attempt)) = self.running.get(&next) {
                attempt.go_live();
            }
        }
    }

    /// Returns true if the reader of this process's stdout or stderr is gone, as `head` is after its last line.
    /// Everything later for that stream is discarded.
    pub(crate) fn is_reader_gone(&self, stream: Source) -> bool {
        self.shared.queue.is_reader_gone(stream)
    }

    /// Returns the first failure to print, except that a reader is gone.
    pub(crate) fn failure(&self) -> Option<OutputError> {
        self.shared.queue.failure()
    }

    /// Prints everything that is left, also the output of attempts that were not finished and of jobs that were not
    /// settled, in the order of the jobs. Waits until the readers have taken all of it, but no longer than until that
    /// time. What a reader has not taken by then is kept beside the log, and is discarded without one.
    ///
    /// # Errors
    /// The first [`failure`](Self::failure).
    pub(crate) fn close_by(mut self, until: Option<Instant>) -> Result<Unprinted, OutputError> {
        while let Some((job, (_, attempt))) = self.running.pop_first() {
            self.waiting.add(job, attempt.finish().stored);
        }
        let queue = &self.shared.queue;
        self.waiting.print_before(u64::MAX, queue);
        queue.close();
        let is_kept = queue.wait_for_end(until) || queue.keep_rest();
        let kept = self.kept.as_ref().map_or(0, |kept| kept.close());
        match queue.failure() {
            Some(failure) => Err(failure),
            None if !is_kept => Ok(Unprinted::Discarded),
            None if kept > 0 => Ok(Unprinted::Kept(kept)),
            None => Ok(Unprinted::Nothing),
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.shared.queue.discard_rest();
        self.shared.queue.close();
    }
}

// The order in which jobs are printed: the outputs that wait, and the jobs whose turn is over.

/// The outputs of jobs that have ended and are not printed yet.
#[derive(Debug)]
struct Waiting {
    jobs: BTreeMap<u64, Stored>,
    spool: Arc<Spool>,
    kept: Option<Arc<Kept>>,
}

/// The output of a job.
#[derive(Debug)]
enum Stored {
    /// The usual kind if many jobs wait: it has no allocation of its own.
    Spooled(Source, Extent),
    Contents(Box<[(Source, Content)]>),
    /// It is beside the log.
    Kept(Box<[Record]>),
}

impl Waiting {
    fn new(spool: &Arc<Spool>, kept: Option<Arc<Kept>>) -> Waiting {
        Waiting { jobs: BTreeMap::new(), spool: Arc::clone(spool), kept }
    }

    /// Adds the output of a job, which replaces that of an earlier attempt. With a log it goes into the files beside
    /// that.
    fn add(&mut self, job: u64, mut contents: Vec<(Source, Content)>) {
        self.remove(job);
        if let Some(kept) = self.kept.as_ref().filter(|_| !contents.is_empty()) {
            let add = |(source, content): &(Source, Content)| {
                kept.add(job, *source, content.bytes(), |write| content.read(write))
            };
            let (added, failed): (Vec<_>, Vec<_>) =
                contents.iter().map(add).partition(|added| added.is_ok());
            let added: Box<[Record]> = added.into_iter().flatten().collect();
            if failed.is_empty() {
                self.jobs.insert(job, Stored::Kept(added));
                return;
            }
            // There is no room beside the log: it is printed from here.
            added.iter().for_each(|record| kept.handed_over(record));
        }
        let stored = match contents.len() {
            0 => return,
            1 => contents.pop().map_or_else(
                || Stored::Contents(Box::default()),
                |(source, content)| match content.into_extent() {
                    Ok(extent) => Stored::Spooled(source, extent),
                    Err(content) => Stored::Contents(Box::new([(source, content)])),
                },
            ),
            _ => Stored::Contents(contents.into()),
        };
        self.jobs.insert(job, stored);
    }

    /// Drops the output of a job.
    fn remove(&mut self, job: u64) {
        match self.jobs.remove(&job) {
            Some(Stored::Spooled(_, extent)) => self.spool.release(extent),
            Some(Stored::Kept(records)) => {
                for record in &records {
                    self.kept.iter().for_each(|kept| kept.handed_over(record));
                }
            }
            _ => {}
        }
    }

    /// Prints the output of a job.
    fn print(&mut self, job: u64, queue: &Queue) {
        if let Some(stored) = self.jobs.remove(&job) {
            self.push(stored, queue);
        }
    }

    /// Prints the outputs of all jobs before this one.
    fn print_before(&mut self, job: u64, queue: &Queue) {
        while let Some(first) = self.jobs.first_entry().filter(|first| *first.key() < job) {
            let stored = first.remove();
            self.push(stored, queue);
        }
    }

    fn push(&self, stored: Stored, queue: &Queue) {
        match stored {
            Stored::Spooled(source, extent) => {
                queue.push_extents(source, Extents::from_one(extent, Arc::clone(&self.spool)));
            }
            Stored::Kept(records) => records.into_iter().for_each(|it| queue.push_kept(it)),
            Stored::Contents(contents) => {
                for (source, content) in contents {
                    queue.push(source, content);
                }
            }
        }
    }
}

/// The turns of jobs in the order of the input.
#[derive(Debug)]
struct Turns {
    /// The first job that is not settled.
    next: u64,
    /// The later jobs that are settled: ranges, from the first one to the one after the last.
    settled: BTreeMap<u64, u64>,
}

impl Turns {
    fn new() -> Turns {
        Turns { next: 1, settled: BTreeMap::new() }
    }

    /// Returns the first job that is not settled.
    fn next(&self) -> u64 {
        self.next
    }

    /// Settles jobs of which none or all are settled.
    fn settle(&mut self, jobs: Range<u64>) {
        if jobs.start < self.next || jobs.is_empty() {
            return;
        }
        let Range { start: job, end } = jobs;
        let before = self.settled.range(..=job).next_back().map(|(from, to)| (*from, *to));
        let from = match before {
            Some((_, to)) if job < to => return,
            Some((from, to)) if job == to => from,
            _ => job,
        };
        let to = self.settled.remove(&end).unwrap_or(end);
        self.settled.insert(from, to);
        if let Some(to) = self.settled.remove(&self.next) {
            self.next = to;
        }
    }
}

#[cfg(test)]
mod order_tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_next_job_is_the_first_that_is_not_settled(
            jobs in proptest::collection::vec(1_u64..60, 0..200)
        ) {
            let mut turns = Turns::new();
            let mut settled = BTreeSet::new();
            for job in jobs {
                turns.settle(job..job + 1);
                settled.insert(job);
                let next = (1..).find(|job| !settled.contains(job)).unwrap();
                prop_assert_eq!(turns.next(), next);
                let gaps = settled.range(next..).filter(|job| !settled.contains(&(**job - 1)));
                prop_assert_eq!(turns.settled.len(), gaps.count());
            }
        }

        #[test]
        fn jobs_that_do_not_exist_are_skipped(
            jobs in proptest::collection::btree_map(1_u64..60, proptest::bool::ANY, 1..30)
        ) {
            let mut turns = Turns::new();
            let mut last = 0;
            for (job, is_settled) in &jobs {
                turns.settle(last + 1..*job);
                if *is_settled {
                    turns.settle(*job..*job + 1);
                }
                last = *job;
            }
            let open = jobs.iter().find(|(_, is_settled)| !**is_settled).map(|(job, _)| *job);
            prop_assert_eq!(turns.next(), open.unwrap_or(last + 1));
        }
    }
}
