//! What is told to `tracing`: what connections carried, and how workers ended.

use std::fmt;
use std::sync::{Arc, Mutex};

use pipewright_ipc::{Options, Pool, PoolOptions};
use pipewright_tests::{isolate, watchdog};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::{exit_words, start, worker};

/// Keeps every event as a line.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!(" {field}={value:?}");
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("pipewright_ipc")
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0 + " ");
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Lines {
    fn find(&self, words: &[&str]) -> bool {
        let lines = self.0.lock().unwrap();
        lines.iter().any(|line| words.iter().all(|words| line.contains(words)))
    }
}

#[test]
fn a_connection_tells_at_its_end_what_it_carried() {
    // Whether anybody listens is noted for the whole process, by whoever has something to tell first.
    isolate::isolated("traced::a_connection_tells_at_its_end_what_it_carried", || {
        let _watch = watchdog::watch();
        let lines = Lines::default();
        tracing::subscriber::set_global_default(lines.clone()).unwrap();
        let mut channel = start("echo", &Options::default());
        channel.send_bytes(&[7; 10_000]).unwrap();
        assert_eq!(channel.recv().unwrap().len(), 10_000);
        assert!(lines.0.lock().unwrap().is_empty());
        channel.close().unwrap();
        let words = [
            "DEBUG message=connection ended",
            " sent.messages=1 ",
            " sent.bytes=10000 ",
            " received.bytes=10000 ",
        ];
        assert!(lines.find(&words), "{:?}", lines.0);
    });
}

#[test]
fn a_pool_tells_of_its_workers() {
    isolate::isolated("traced::a_pool_tells_of_its_workers", || {
        let _watch = watchdog::watch();
        let lines = Lines::default();
        tracing::subscriber::set_global_default(lines.clone()).unwrap();
        let options = PoolOptions { max_workers: 1, max_jobs: Some(1), ..PoolOptions::default() };
        let pool = Pool::new(worker("calls"), options).unwrap();
        pool.call("echo").unwrap();
        pool.call("exit 7").unwrap_err();
        pool.shut_down();
        assert!(lines.find(&["INFO message=worker started", " worker=1 "]), "{:?}", lines.0);
        let ended = ["INFO message=worker ended", " jobs=1 ", " worker=1 "];
        assert!(lines.find(&ended), "{:?}", lines.0);
        let how = exit_words(7);
        let lost = ["WARN message=worker lost", " worker=2 ", &how, "the last line of 7"];
        assert!(lines.find(&lost), "{:?}", lines.0);
        let pool = Pool::new(pipewright::Command::new("/no/such"), PoolOptions::default()).unwrap();
        pool.call("echo").unwrap_err();
        assert!(lines.find(&["WARN message=worker not started", "/no/such"]), "{:?}", lines.0);
    });
}

#[test]
fn tuned_options_differ_in_the_threshold_alone() {
    let _watch = watchdog::watch();
    let options = Options { app: "a".into(), ring_bytes: 64 << 10, ..Options::default() };
    let tuned = options.tune().unwrap();
    assert!((512..=128 << 10).contains(&tuned.threshold_bytes), "{tuned:?}");
    assert_eq!(Options { threshold_bytes: options.threshold_bytes, ..tuned }, options);
}
