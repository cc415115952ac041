//! Entries for `fuzz/`: both sides of a connection, whose peer sends any bytes.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use pipewright_batch::{
    Attempt, AttemptKey, Executor as _, ExecutorEvent, Job, JobId, LocalSettings,
};

use super::host::link::{self, Closer};
use super::host::reports::{Origin, Reports};
use super::outbox::Outbox;
use super::wire::hello::{greet_host, greet_worker};
use super::{host, worker};
use crate::sealed::Secret;

/// Lets a host read these bytes as those of a worker that it has greeted, while it wants two jobs to run. Each job may
/// end once.
pub fn lying_worker(bytes: &[u8]) {
    let reports = Reports::new();
    let mut remote = host::Remote::new(Arc::clone(&reports), Duration::from_secs(60), true);
    for job in 1..=2 {
        remote.start(attempt(AttemptKey { job, attempt: 1 }));
    }
    let close: Closer = Arc::new(|| {});
    let (settings, notes) = (LocalSettings::default(), AtomicU32::new(0));
    link::serve(&reports, bytes, io::sink(), &settings, &close, Origin::Command, &notes);
    let mut ends = HashMap::new();
    // Everything has arrived. What is left is to wait, which a time in the past does not.
    while let Ok(Some(event)) = remote.next_event(Some(Instant::now())) {
        if let ExecutorEvent::Ended(end) = event {
            let ends = ends.entry(end.key).or_insert(0);
            *ends += 1;
            assert!(*ends == 1 && end.key.job <= 2 && end.key.attempt == 1, "{:?}", end.key);
        }
    }
}

/// Lets a worker read these bytes as those of a host that it has greeted. Returns the number of attempts that it would
/// start.
pub fn lying_host(bytes: &[u8]) -> usize {
    worker::orders_of(bytes, &Outbox::new())
}

/// Greets both sides with these bytes, with a secret and without.
pub fn strangers(bytes: &[u8]) {
    let secret = Secret::random().ok();
    for secret in [None, secret.as_ref()] {
        for skips_noise in [false, true] {
            let greeted = greet_worker(&mut &*bytes, &mut io::sink(), secret, skips_noise);
            assert!(greeted.is_err() || secret.is_none(), "the secret was guessed");
        }
        let greeted = greet_host(&mut &*bytes, &mut io::sink(), secret);
        assert!(greeted.is_err() || secret.is_none(), "the secret was guessed");
    }
}

fn attempt(key: AttemptKey) -> Attempt {
    let id = JobId::new(&Job::new("true"), 0);
    let mut attempt = Attempt::new(key, id, vec!["true".into()]);
    attempt.timeout = Some(Duration::from_secs(1));
    attempt
}
