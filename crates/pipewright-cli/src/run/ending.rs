//! The end of an attempt: whether another one follows, the message about it, and the output that was kept until then.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pipewright::{
    Captured, Containment, Error, Exceeded, ExitStatus, HeadAndTail, Outcome, Output, Signal,
    Source, SpillFailed, Stdio,
};
use pipewright_batch::{AttemptOutcome, Spooled, shell_quoted};
use pipewright_os::base::error::{OneLine, Quoted};
use pipewright_os::base::stdio;

use crate::args::{CommonOptions, RetryOptions, RunOptions, Span};
use crate::{Failure, print_error};

/// The attempts of a run.
#[derive(Debug)]
pub(super) struct Retries<'a> {
    options: &'a RetryOptions,
    /// The time for all of them.
    total: Option<Duration>,
    started: Instant,
    /// The time of the end of the last attempt.
    ended: Instant,
    attempts: u32,
}

impl Retries<'_> {
    pub(super) fn new(options: &RunOptions) -> Retries<'_> {
        let now = Instant::now();
        let total = options.total_timeout.as_ref().and_then(Span::as_limit);
        Retries { options: &options.retry, total, started: now, ended: now, attempts: 0 }
    }

    /// Returns the time at which all attempts end.
    pub(super) fn end(&self) -> Option<Instant> {
        self.started.checked_add(self.total?)
    }

    /// Records the end of an attempt. Returns the delay before the next one, or `None` if there is none.
    pub(super) fn delay_after(&mut self, result: &Result<Output, Error>) -> Option<Duration> {
        self.attempts += 1;
        self.ended = Instant::now();
        let delay = self.options.delay_after(self.attempts);
        let is_left = self.attempts <= self.options.retries;
        // An attempt that could not begin in time is not waited for.
        let in_time = self.end().is_none_or(|end| self.ended + delay < end);
        (is_left && in_time && self.is_worth_a_retry(result)).then_some(delay)
    }

    pub(super) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns the time from the first start to the end of the last attempt.
    pub(super) fn elapsed(&self) -> Duration {
        self.ended - self.started
    }

    /// Returns the message about a failure that is followed by another attempt.
    pub(super) fn message(&self, failure: &str, delay: Duration) -> String {
        let most = u64::from(self.options.retries) + 1;
        let first = &self.options.retry_delay;
        let when = match () {
            () if delay.is_zero() => String::new(),
            () if delay == first.duration => format!(" in {first}"),
            () => format!(" in {delay:?}"),
        };
        format!("attempt {} of {most}: {failure}; retrying{when}", self.attempts)
    }

    fn is_worth_a_retry(&self, result: &Result<Output, Error>) -> bool {
        let outcome = match result {
            Ok(capture) => match capture.outcome {
                // An interrupt also ends the retries. A command in its own group gets it alone, and so its status has
                // to be checked.
                Outcome::Cancelled => return false,
                _ if capture.status.terminating_signal() == Some(Signal::INT) => return false,
                Outcome::TimedOut => AttemptOutcome::TimedOut,
                Outcome::IdleTimedOut => AttemptOutcome::IdleTimedOut,
                Outcome::LimitExceeded => AttemptOutcome::LimitExceeded,
                _ if capture.success() => return false,
                Outcome::OutOfMemory(_) => AttemptOutcome::OutOfMemory,
                _ => outcome_of(capture.status),
            },
            Err(error) if error.is_start() => AttemptOutcome::NotStarted(String::new()),
            Err(_) => return false,
        };
        self.options.on().iter().any(|failure| failure.includes(&outcome))
    }
}

fn outcome_of(status: ExitStatus) -> AttemptOutcome {
    match (status.code(), status.terminating_signal()) {
        (None, Some(signal)) => AttemptOutcome::Signaled(signal.number()),
        (code, _) => AttemptOutcome::Exited(code.unwrap_or(-1)),
    }
}

/// Prints the commands that are about to run, as a line for a shell.
pub(crate) fn print_start(commands: &[impl AsRef<[OsString]>]) {
    let quoted = commands.iter().map(|words| shell_quoted(words.as_ref()));
    let line: Vec<_> = quoted.map(|words| String::from_utf8_lossy(&words).into_owned()).collect();
    print_error(&format!("running {}", OneLine(&line.join(" | "))));
}

/// Prints how a command has ended, and how its processes were held.
pub(crate) fn print_end<T>(name: &str, captured: &Captured<T>) {
    let Captured { pid, status, elapsed, containment, .. } = captured;
    print_error(&format!("{name} ended after {elapsed:.3?}: {status} (pid {pid}, {containment})"));
}

/// The limits that a message names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times<'a> {
    pub(crate) common: &'a CommonOptions,
    /// The limit for all attempts.
    pub(crate) total: Option<&'a Span>,
}

impl Times<'_> {
    /// Returns true if the limit for all attempts stopped the command, and not that for one attempt.
    fn is_total(&self, exceeded: Option<Exceeded>) -> bool {
        self.common.timeout().map(Exceeded::Time) != exceeded
    }
}

/// Returns the message about a stop, or about output that is still held; `None` if the command just ended.
pub(crate) fn about_end<T>(
    name: &str,
    captured: &Captured<T>,
    times: &Times<'_>,
) -> Option<String> {
    let options = times.common;
    let shown = |span: &Option<Span>| span.as_ref().map(ToString::to_string).unwrap_or_default();
    Some(match captured.outcome {
        Outcome::TimedOut => match times.total.filter(|_| times.is_total(captured.exceeded)) {
            Some(total) => format!("{name} timed out: all attempts took {total}"),
            None => format!("{name} timed out after {}", shown(&options.timeout)),
        },
        Outcome::IdleTimedOut => {
            format!("{name} timed out: no output for {}", shown(&options.idle_timeout))
        }
        Outcome::LimitExceeded => {
            format!(
                "{name} exceeded --max-output ({} bytes)",
                options.max_output.unwrap_or_default()
            )
        }
        Outcome::OutOfMemory(oom) => match oom.victim {
            Some(_) => oom.to_string(),
            // The name of the command says whose process it was.
            None => format!("{name} ran out of memory: {oom}"),
        },
        Outcome::Cancelled => format!("{name} was interrupted"),
        _ if captured.held_open && lives_on(captured.containment) => {
            format!("{name} exited; a background process still holds its output (see --linger)")
        }
        _ if captured.leftovers_killed > 0 => {
            let (processes, them) = match captured.leftovers_killed {
                1 => ("1 background process was".to_owned(), "it"),
                many => (format!("{many} background processes were"), "them"),
            };
            format!("{name} exited; {processes} killed (--contain none keeps {them})")
        }
        _ => return None,
    })
}

/// Returns true if a process that outlives the command keeps running, and so loses its later output. Otherwise it has
/// been killed, and the report counts it: nothing more would have come.
fn lives_on(containment: Containment) -> bool {
    matches!(containment, Containment::None | Containment::Group)
}

/// Quotes names of programs, on one line.
pub(crate) fn quoted(names: &str) -> String {
    Quoted(names.as_ref()).to_string()
}

/// The output of the current attempt.
#[derive(Debug, Clone, Default)]
pub(super) struct Kept {
    streams: Arc<[Mutex<Stream>; 2]>,
    /// The most bytes of a stream: those of `--max-output`, or the head of `--keep-output`.
    most: Option<usize>,
    /// The start and the end of a stream, and the folder for all of one that is cut.
    ends: Option<((usize, usize), Option<PathBuf>)>,
}

#[derive(Debug, Default)]
struct Stream {
    output: Spooled,
    /// Keeps the output, in place of `output`.
    ends: Option<HeadAndTail>,
    bytes: usize,
    /// True if more than `most` bytes came.
    exceeds_most: bool,
    /// The first failure. What came after it is not kept.
    failed: Option<io::Error>,
    /// The first error of the file with all of the stream.
    spill_failed: Option<SpillFailed>,
}

impl Kept {
    pub(super) fn new(options: &RunOptions) -> Result<Kept, Failure> {
        let ends = options.keep.head_and_tail()?;
        if options.keep.keep_output.is_some() && options.common.tee.is_some() {
            let message = "--keep-output cannot be used with --tee: --spill keeps all in a file";
            return Err(Failure(message.to_owned()));
        }
        if let Some(folder) = &options.keep.spill {
            let doing = format!("write to the folder {} of --spill", Quoted(folder.as_os_str()));
            HeadAndTail::check_folder(folder).map_err(Failure::cannot(&doing))?;
        }
        Ok(Kept {
            streams: Arc::default(),
            most: options.common.max_output.into_iter().chain(options.keep.head()).min(),
            ends: ends.map(|sizes| (sizes, options.keep.spill.clone())),
        })
    }

    /// Keeps nothing any more: another attempt begins.
    pub(super) fn clear(&self) {
        for source in [Source::Stdout, Source::Stderr] {
            let ends = self.ends.as_ref().map(|((head, tail), folder)| {
                let mut ends = HeadAndTail::new(*head, *tail);
                if let Some(folder) = folder {
                    ends.spill_to(folder, source);
                }
                ends
            });
            *self.stream(source) = Stream { ends, ..Stream::default() };
        }
    }

    /// Returns true if bytes of the last attempt were left out.
    pub(super) fn is_cut(&self) -> bool {
        let ends = self.ends.as_ref().map(|((head, tail), _)| head.saturating_add(*tail));
        [Source::Stdout, Source::Stderr].into_iter().any(|source| {
            let stream = self.stream(source);
            stream.exceeds_most || ends.is_some_and(|most| stream.bytes > most)
        })
    }

    /// Returns the destination of a stream that is passed on up to its limit, and whose end is
    /// [printed](Self::print_ends) later.
    pub(super) fn passed(&self, source: Source) -> Stdio {
        let kept = self.clone();
        Stdio::tee_map(source, None, move |chunk| {
            let mut stream = kept.stream(source);
            let chunk = stream.next(chunk, kept.most);
            match &mut stream.ends {
                None => chunk.to_vec(),
                Some(ends) => {
                    ends.push(chunk);
                    ends.take_start().to_vec()
                }
            }
        })
    }

    /// Prints what is kept of streams that are passed on.
    ///
    /// # Errors
    /// It cannot be printed.
    pub(super) fn print_ends(&self) -> io::Result<()> {
        let print = |source, to: &mut dyn Write| match self.stream(source).finish_ends() {
            Some(bytes) => to.write_all(&bytes).and_then(|()| to.flush()),
            None => Ok(()),
        };
        let stdout = print(Source::Stdout, &mut stdio::stdout());
        stdout.and(print(Source::Stderr, &mut io::stderr()))
    }

    /// Takes the first error of a file with all of a stream, once the stream is printed.
    pub(super) fn take_spill_failed(&self) -> Option<SpillFailed> {
        let take = |source| self.stream(source).spill_failed.take();
        [Source::Stdout, Source::Stderr].into_iter().filter_map(take).next()
    }

    /// Returns the destination of a stream.
    pub(super) fn stdio(&self, source: Source) -> Stdio {
        Stdio::tee_with(self.closure(source))
    }

    /// Returns the closure that keeps each chunk.
    pub(super) fn closure(&self, source: Source) -> impl FnMut(&[u8]) + Send + use<> {
        let kept = self.clone();
        move |chunk: &[u8]| {
            let mut stream = kept.stream(source);
            let chunk = stream.next(chunk, kept.most);
            if let Some(ends) = &mut stream.ends {
                ends.push(chunk);
            } else if stream.failed.is_none() {
                stream.failed = stream.output.push(chunk).err();
            }
        }
    }

    /// Writes a stream, or its last lines.
    ///
    /// # Errors
    /// It cannot be written, or it is not whole.
    pub(super) fn write(
        &self,
        source: Source,
        lines: Option<u32>,
        to: &mut impl Write,
    ) -> io::Result<()> {
        let mut stream = self.stream(source);
        if let Some(bytes) = stream.finish_ends() {
            return to.write_all(&bytes);
        }
        write_last(&stream.output, lines, to)?;
        stream.failed.take().map_or(Ok(()), Err)
    }

    fn stream(&self, source: Source) -> MutexGuard<'_, Stream> {
        let [stdout, stderr] = &*self.streams;
        let stream = if source == Source::Stdout { stdout } else { stderr };
        // It is consistent between calls.
        stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream {
    /// Ends what keeps the start and the end, and returns what is to be printed of it.
    fn finish_ends(&mut self) -> Option<Vec<u8>> {
        let kept = self.ends.take()?.finish();
        self.spill_failed = kept.spill_failed;
        Some(kept.bytes)
    }

    /// Returns the part of the next chunk that is within the limit.
    fn next<'a>(&mut self, chunk: &'a [u8], most: Option<usize>) -> &'a [u8] {
        let most = most.map_or(usize::MAX, |most| most.saturating_sub(self.bytes));
        self.exceeds_most |= chunk.len() > most;
        let chunk = chunk.get(..most).unwrap_or(chunk);
        self.bytes = self.bytes.saturating_add(chunk.len());
        chunk
    }
}

/// Writes the last lines, in two passes: the output may be larger than memory.
fn write_last(output: &Spooled, lines: Option<u32>, to: &mut impl Write) -> io::Result<()> {
    let Some(lines) = lines else { return output.read(|bytes| to.write_all(bytes)) };
    if lines == 0 {
        return Ok(());
    }
    let (mut line_feeds, mut last) = (0_u64, 0);
    output.read(|bytes| {
        line_feeds += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        last = bytes.last().copied().unwrap_or(last);
        Ok(())
    })?;
    // The one at the end begins no line.
    let all = line_feeds - u64::from(last == b'\n') + 1;
    let mut skipped = all.saturating_sub(lines.into());
    output.read(|mut bytes| {
        while skipped > 0 {
            let Some(at) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(()) };
            bytes = bytes.get(at + 1..).unwrap_or_default();
            skipped -= 1;
        }
        to.write_all(bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_those_of_tail() {
        for (text, lines, last) in [
            ("a\nb\nc\n", 2, "b\nc\n"),
            ("a\nb\nc", 2, "b\nc"),
            ("a\nb\nc\n", 3, "a\nb\nc\n"),
            ("a\nb\nc\n", 9, "a\nb\nc\n"),
            ("a\nb\n\n", 1, "\n"),
            ("a\nb\n", 0, ""),
            ("\n", 1, "\n"),
            ("", 1, ""),
        ] {
            let (mut output, mut written) = (Spooled::default(), Vec::new());
            output.push(text.as_bytes()).unwrap();
            write_last(&output, Some(lines), &mut written).unwrap();
            assert_eq!(written, last.as_bytes(), "{text:?} {lines}");
        }
    }
}
