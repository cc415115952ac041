//! The end of a connection by GOODBYE: a worker that waits for the end of the stream gets it, and is not waited for.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pipewright::{ExitStatus, Stdio};
use pipewright_ipc::{Channel, OnLine, Options, Pool, PoolOptions, Schedule};
use pipewright_test_macros::watched_test;

use super::async_calls::run;
use super::pool::options;
use super::worker;

/// Workers that send GOODBYE before they wait for the end, and workers that do not.
const WORKERS: [&str; 2] = ["ignores-goodbye", "ignores-goodbye,answers"];

fn is_success(status: ExitStatus) -> bool {
    status.success()
}

#[watched_test]
fn a_closed_channel_ends_the_stream_to_its_worker() {
    for kind in WORKERS {
        let mut command = worker(kind);
        command.stdout(Stdio::null());
        let channel: Channel = Channel::start(&mut command, &Options::default()).unwrap();
        assert!(channel.close().unwrap().is_some_and(is_success), "{kind}");
        let closed = run(async {
            let options = Options::default();
            let started = Channel::<(), ()>::start_async(&mut command, &options).await;
            started.unwrap().close_async().await
        });
        assert!(closed.unwrap().is_some_and(is_success), "{kind}");
    }
}

#[watched_test]
fn a_pool_that_shuts_down_ends_the_stream_to_its_workers() {
    for kind in WORKERS {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&lines);
        let on_line = OnLine::new(move |line| taken.lock().unwrap().push(line.text.to_owned()));
        // Longer than the test may take.
        let goodbye = Duration::from_secs(100_000);
        let shutdown = Schedule { goodbye, ..Schedule::default() };
        let options = PoolOptions { shutdown, on_line: Some(on_line), ..options() };
        let pool = Pool::new(worker(kind), options).unwrap();
        assert!(pool.call("").unwrap().is_empty());
        pool.shut_down();
        assert_eq!(*lines.lock().unwrap(), ["the stream has ended"], "{kind}");
    }
}
