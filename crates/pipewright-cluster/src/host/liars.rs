//! Tests: nodes that lie, or whose main thread hangs while their beats go on.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use pipewright_batch::{
    Attempt, AttemptEnd, AttemptKey, AttemptOutcome, Executor as _, ExecutorEvent, Job, JobId,
    LocalSettings, NodeOutput, SentFile,
};

use super::Remote;
use super::link::{self, Closer, Served};
use super::reports::{Origin, Report, Reports};
use crate::wire::{self, About, Ended, FilePart, FromWorker};

/// A worker that sends its node, the same messages again and again, and a beat twice a second until the connection is
/// closed.
struct Liar {
    first: Vec<u8>,
    repeated: Vec<u8>,
    repeats: u32,
    beats: u64,
    is_closed: Arc<AtomicBool>,
}

impl Read for Liar {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.first.is_empty() && self.repeats > 0 {
            self.repeats -= 1;
            self.first = self.repeated.clone();
        }
        if self.first.is_empty() {
            thread::park_timeout(Duration::from_millis(100));
            if self.is_closed.load(Ordering::SeqCst) {
                return Ok(0);
            }
            self.beats += 1;
            wire::append(&mut self.first, &FromWorker::Beat(self.beats)).unwrap();
        }
        let count = buffer.len().min(self.first.len());
        buffer[..count].copy_from_slice(&self.first[..count]);
        self.first.drain(..count);
        Ok(count)
    }
}

/// A writer whose peer never reads.
struct Unread(Arc<AtomicBool>);

impl Write for Unread {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        while !self.0.load(Ordering::SeqCst) {
            thread::park_timeout(Duration::from_millis(10));
        }
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Connects a liar, in a thread of its own. Returns the host, and true once the connection is closed.
fn host(repeated: &[FromWorker<'_>], repeats: u32) -> (Remote, Arc<AtomicBool>) {
    let reports = Reports::new();
    // Keeps the host from giving up.
    reports.add_connector(Origin::Command);
    let remote = Remote::new(Arc::clone(&reports), Duration::from_millis(200), true);
    let is_closed = Arc::new(AtomicBool::new(false));
    let closed = Arc::clone(&is_closed);
    let close: Closer = Arc::new(move || closed.store(true, Ordering::SeqCst));
    let mut liar = Liar {
        first: Vec::new(),
        repeated: Vec::new(),
        repeats,
        beats: 0,
        is_closed: Arc::clone(&is_closed),
    };
    let about = About { node: "liar".to_owned(), slots: 1 };
    wire::append(&mut liar.first, &FromWorker::About(about)).unwrap();
    for message in repeated {
        wire::append(&mut liar.repeated, message).unwrap();
    }
    let unread = Unread(Arc::clone(&is_closed));
    let settings = LocalSettings::default();
    thread::spawn(move || {
        link::serve(&reports, liar, unread, &settings, &close, Origin::Command, &AtomicU32::new(0))
    });
    (remote, is_closed)
}

fn attempt(timeout: Option<Duration>) -> Attempt {
    let key = AttemptKey { job: 1, attempt: 1 };
    let id = JobId::new(&Job::new("true"), 0);
    let mut attempt = Attempt::new(key, id, vec!["true".into()]);
    attempt.timeout = timeout;
    attempt
}

/// Returns the end of the attempt, and the number of notes before it. `on_join` is called once the node is there.
fn end(remote: &mut Remote, mut on_join: impl FnMut(&mut Remote)) -> (AttemptEnd, usize) {
    let until = Instant::now() + Duration::from_secs(60);
    let mut notes = 0;
    loop {
        match remote.next_event(Some(until)).unwrap() {
            Some(ExecutorEvent::Ended(end)) => return (*end, notes),
            Some(ExecutorEvent::Capacity { cpus: 1 }) => on_join(remote),
            Some(ExecutorEvent::Note(_)) => notes += 1,
            Some(_) => {}
            None => panic!("the attempt never ended"),
        }
    }
}

fn is_lost(end: &AttemptEnd, words: &str) {
    let AttemptOutcome::Lost(reason) = &end.outcome else { panic!("{end:?}") };
    assert!(reason.contains(words), "{reason}");
}

#[test]
fn an_attempt_that_does_not_end_after_its_timeout_is_lost_though_its_node_beats() {
    let (mut remote, is_closed) = host(&[], 0);
    let start = Instant::now();
    remote.start(attempt(Some(Duration::from_millis(300))));
    let (end, _) = end(&mut remote, |_| {});
    is_lost(&end, "did not end in time");
    assert!(start.elapsed() >= Duration::from_millis(500));
    assert!(is_closed.load(Ordering::SeqCst));
}

#[test]
fn an_attempt_that_does_not_end_after_a_stop_is_lost_though_its_node_beats() {
    let (mut remote, is_closed) = host(&[], 0);
    remote.start(attempt(None));
    let (end, _) = end(&mut remote, |remote| remote.stop(AttemptKey { job: 1, attempt: 1 }));
    is_lost(&end, "did not end in time");
    assert!(is_closed.load(Ordering::SeqCst));
}

#[test]
fn a_node_that_ends_jobs_that_do_not_run_there_is_given_up() {
    let other = AttemptKey { job: 7, attempt: 1 };
    let end_of_other = Ended::new(AttemptEnd::without_run(other, AttemptOutcome::Cancelled), None);
    let (mut remote, is_closed) = host(&[FromWorker::Ended(Box::new(end_of_other))], 100_000);
    remote.start(attempt(None));
    let (end, notes) = end(&mut remote, |_| {});
    is_lost(&end, "it ends jobs that do not run there");
    // It comes again, and each time with as many.
    assert!(notes < 20, "{notes}");
    assert!(is_closed.load(Ordering::SeqCst));
}

/// Reads what a node has sent, up to its end.
fn serve(reports: &Arc<Reports>, bytes: &[u8], notes: &AtomicU32) -> Served {
    let close: Closer = Arc::new(|| {});
    let settings = LocalSettings::default();
    link::serve(reports, bytes, io::sink(), &settings, &close, Origin::Command, notes)
}

#[test]
fn a_node_that_sends_more_output_than_was_allowed_is_given_up() {
    let key = AttemptKey { job: 7, attempt: 1 };
    let piece = vec![b'x'; 100_000];
    let output = FromWorker::Output(key, wire::Stream::Stdout, &piece);
    // The host gives credit for what it takes; it takes nothing here before all has come.
    let reports = Reports::new();
    let mut bytes = Vec::new();
    let about = About { node: "liar".to_owned(), slots: 1 };
    wire::append(&mut bytes, &FromWorker::About(about)).unwrap();
    for _ in 0..100 {
        wire::append(&mut bytes, &output).unwrap();
    }
    let served = serve(&reports, &bytes, &AtomicU32::new(0));
    assert!(served.error.unwrap().to_string().contains("more output than was allowed"));
}

#[test]
fn the_messages_of_a_node_are_bounded() {
    let (mut remote, _) = host(&[FromWorker::Note("x".repeat(10_000))], 5_000);
    let (until, mut notes) = (Instant::now() + Duration::from_secs(60), 0);
    // However long that takes: the time of an attempt would end it on a slow machine.
    while notes < 1_000 {
        match remote.next_event(Some(until)).unwrap() {
            Some(event) => notes += usize::from(matches!(event, ExecutorEvent::Note(_))),
            None => panic!("{notes} messages were told"),
        }
    }
    remote.start(attempt(Some(Duration::from_secs(2))));
    notes += end(&mut remote, |_| {}).1;
    assert!((1_000..1_100).contains(&notes), "{notes}");
}

/// A worker that says nothing until the connection is closed, and tells when somebody listens.
struct Silent(mpsc::Sender<()>, Arc<AtomicBool>);

impl Read for Silent {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        let _ = self.0.send(());
        while !self.1.load(Ordering::SeqCst) {
            thread::park_timeout(Duration::from_millis(10));
        }
        Ok(0)
    }
}

#[test]
fn a_node_that_has_not_told_its_name_is_closed_when_the_batch_ends() {
    let reports = Reports::new();
    let is_closed = Arc::new(AtomicBool::new(false));
    let closed = Arc::clone(&is_closed);
    let close: Closer = Arc::new(move || closed.store(true, Ordering::SeqCst));
    let (sender, is_read) = mpsc::channel();
    let silent = Silent(sender, Arc::clone(&is_closed));
    let (serving, settings) = (Arc::clone(&reports), LocalSettings::default());
    let thread = thread::spawn(move || {
        link::serve(
            &serving,
            silent,
            io::sink(),
            &settings,
            &close,
            Origin::Command,
            &AtomicU32::new(0),
        )
    });
    is_read.recv().unwrap();
    reports.close();
    assert!(is_closed.load(Ordering::SeqCst), "its time to tell its name is not waited for");
    assert!(!thread.join().unwrap().has_joined);
}

#[test]
fn the_texts_of_a_node_are_bounded() {
    const LONG: usize = 1_000_000;
    let key = AttemptKey { job: 1, attempt: 1 };
    let long = || "x".repeat(LONG);
    let mut bytes = Vec::new();
    let about = About { node: long(), slots: 1 };
    wire::append(&mut bytes, &FromWorker::About(about)).unwrap();
    // Three times, and only the first is reported.
    for _ in 0..3 {
        wire::append(&mut bytes, &FromWorker::Draining(long())).unwrap();
    }
    let lost = AttemptEnd::without_run(key, AttemptOutcome::Lost(long()));
    let mut end = Box::new(Ended::new(lost, Some(NodeOutput::default())));
    end.end.node = Some(long());
    end.written.iter_mut().for_each(|it| (it.tail, it.error) = (long(), Some(long())));
    wire::append(&mut bytes, &FromWorker::Ended(end)).unwrap();
    let reports = Reports::new();
    serve(&reports, &bytes, &AtomicU32::new(0));
    let kept = reports.take(None);
    assert_eq!(kept.len(), 4, "its name, that it is drained, an end, and that it has left");
    let text = format!("{kept:?}");
    assert!(text.contains("xxx") && text.len() < 10_000, "{} bytes are kept", text.len());
}

#[test]
fn an_attempt_that_has_not_begun_is_not_ended_by_its_node() {
    let key = AttemptKey { job: 1, attempt: 1 };
    let success = AttemptEnd::without_run(key, AttemptOutcome::Exited(0));
    let success = FromWorker::Ended(Box::new(Ended::new(success, None)));
    let (mut remote, _) = host(&[success], 100);
    remote.place(attempt(None));
    let until = Instant::now() + Duration::from_secs(60);
    let (mut is_placed, mut late) = (false, 0);
    // It waits for its begin, and ends of it come.
    while !is_placed || late < 10 {
        match remote.next_event(Some(until)).unwrap() {
            Some(ExecutorEvent::Ended(end)) => panic!("{end:?}"),
            Some(ExecutorEvent::Placed(placed)) => is_placed = placed == key,
            Some(ExecutorEvent::Note(text)) => late += usize::from(text.contains("does not count")),
            Some(_) => {}
            None => panic!("{late} late ends were told"),
        }
    }
}

#[test]
fn a_node_that_comes_again_has_no_more_messages() {
    let mut bytes = Vec::new();
    let about = About { node: "liar".to_owned(), slots: 1 };
    wire::append(&mut bytes, &FromWorker::About(about)).unwrap();
    for _ in 0..600 {
        wire::append(&mut bytes, &FromWorker::Note("again".to_owned())).unwrap();
    }
    let (reports, notes) = (Reports::new(), AtomicU32::new(0));
    let mut told = 0;
    for _ in 0..3 {
        serve(&reports, &bytes, &notes);
        let kept = reports.take(None).into_iter();
        told += kept.filter(|report| matches!(report, Report::Note { .. })).count();
    }
    assert_eq!(told, 1_000, "the last one says that there are more");
}

#[test]
fn a_node_that_beats_and_never_tells_its_name_is_given_up() {
    let is_closed = Arc::new(AtomicBool::new(false));
    let closed = Arc::clone(&is_closed);
    let close: Closer = Arc::new(move || closed.store(true, Ordering::SeqCst));
    let (first, repeated) = (Vec::new(), Vec::new());
    let unread = Unread(Arc::clone(&is_closed));
    let liar = Liar { first, repeated, repeats: 0, beats: 0, is_closed };
    let (reports, settings) = (Reports::new(), LocalSettings::default());
    let start = Instant::now();
    let served =
        link::serve(&reports, liar, unread, &settings, &close, Origin::Command, &AtomicU32::new(0));
    assert!(!served.has_joined && served.error.is_some());
    assert!(start.elapsed() >= link::JOIN_TIMEOUT);
}

#[test]
fn a_node_that_sends_files_by_itself_is_given_up() {
    for (message, words) in [
        (FromWorker::File(FilePart::Begin(0o644)), "a file that was not asked for"),
        (FromWorker::File(FilePart::End(None)), "a file that was not asked for"),
        (FromWorker::Stored(None), "files that were not sent"),
    ] {
        let (reports, mut bytes) = (Reports::new(), Vec::new());
        let about = About { node: "liar".to_owned(), slots: 1 };
        wire::append(&mut bytes, &FromWorker::About(about)).unwrap();
        wire::append(&mut bytes, &message).unwrap();
        let error = serve(&reports, &bytes, &AtomicU32::new(0)).error.unwrap().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn an_attempt_whose_files_do_not_come_is_lost_though_its_node_beats() {
    let key = AttemptKey { job: 1, attempt: 1 };
    let success = AttemptEnd::without_run(key, AttemptOutcome::Exited(0));
    let (mut remote, is_closed) =
        host(&[FromWorker::Ended(Box::new(Ended::new(success, None)))], 2);
    let mut attempt = attempt(None);
    attempt.files.fetch = vec!["never".into()];
    remote.start(attempt);
    let (end, _) = end(&mut remote, |_| {});
    is_lost(&end, "the files of job 1, attempt 1 do not move");
    assert!(is_closed.load(Ordering::SeqCst));
}

#[test]
fn an_attempt_whose_files_are_not_taken_waits_for_another_node_though_its_node_beats() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let (mut remote, is_closed) = host(&[], 0);
    let mut attempt = attempt(None);
    attempt.files.send = vec![SentFile::new(file.path(), false)];
    remote.start(attempt);
    while !is_closed.load(Ordering::SeqCst) {
        let event = remote.next_event(Some(Instant::now() + Duration::from_millis(10))).unwrap();
        assert!(!matches!(event, Some(ExecutorEvent::Ended(_))), "{event:?}");
    }
    assert_eq!(remote.waiting(), [AttemptKey { job: 1, attempt: 1 }]);
}
