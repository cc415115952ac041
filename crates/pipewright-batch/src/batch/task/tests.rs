//! Batches of tasks, with shells as jobs.
#![cfg(unix)]

use std::future::Future;
use std::time::{Duration, Instant};

use super::*;
use crate::vocabulary::JobOutcome;

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn shell(script: &str) -> Job {
    Job::new("sh").args(["-c", script])
}

#[test]
fn a_task_gets_all_events_and_the_counts() {
    block_on(async {
        // More events than wait for the task.
        let jobs: Vec<Job> =
            (0..200).map(|number| shell(&format!("exit {}", number % 2))).collect();
        let mut run = Batch::new().jobs(4).start_async(jobs).await.unwrap();
        let mut settled = 0;
        while let Some(event) = run.next().await {
            settled += usize::from(matches!(event.unwrap(), Event::Settled { .. }));
        }
        let summary = run.finish().await.unwrap();
        assert_eq!((settled, summary.succeeded, summary.failed), (200, 100, 100));
    });
}

#[test]
fn two_batches_run_at_the_same_time_on_one_thread() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
        // Each waits for the other one.
        let meet = |mine: &std::path::Path, theirs: &std::path::Path| {
            let (mine, theirs) = (mine.display(), theirs.display());
            shell(&format!("touch {mine}; until [ -e {theirs} ]; do sleep 0.05; done"))
        };
        let mut first = Box::pin(Batch::new().run_async([meet(&one, &other)]));
        let mut second = Box::pin(Batch::new().run_async([meet(&other, &one)]));
        let mut ended = [None, None];
        std::future::poll_fn(|context| {
            if ended[0].is_none() {
                if let Poll::Ready(summary) = first.as_mut().poll(context) {
                    ended[0] = Some(summary.unwrap().succeeded);
                }
            }
            if ended[1].is_none() {
                if let Poll::Ready(summary) = second.as_mut().poll(context) {
                    ended[1] = Some(summary.unwrap().succeeded);
                }
            }
            if ended.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        assert_eq!(ended, [Some(1), Some(1)]);
    });
}

#[test]
fn a_run_can_be_controlled_while_it_is_awaited() {
    block_on(async {
        let run = Batch::new().jobs(1).start_async([shell("sleep 1000"), shell("true")]).await;
        let mut run = run.unwrap();
        let mut states = Vec::new();
        while let Some(event) = run.next().await {
            match event.unwrap() {
                Event::Started { .. } => run.control().stop(),
                Event::Settled { outcome, .. } => states.push(outcome),
                _ => {}
            }
        }
        states.sort_by_key(|outcome| outcome.name());
        assert_eq!(states, [JobOutcome::NotRun, JobOutcome::Stopped]);
    });
}

#[test]
fn a_dropped_run_kills_its_jobs() {
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    block_on(async {
        let script = format!("trap '' TERM; echo $$ > {}; sleep 1000", pid_file.display());
        let mut run = Batch::new().start_async([shell(&script)]).await.unwrap();
        while !matches!(run.next().await, Some(Ok(Event::Started { .. }))) {}
        let pid = || std::fs::read_to_string(&pid_file).unwrap_or_default();
        wait_until(|| pid().ends_with('\n'));
        let process = std::path::Path::new("/proc").join(pid().trim());
        assert!(process.exists());
        drop(run);
        wait_until(|| !process.exists());
    });
}

fn wait_until(mut fact: impl FnMut() -> bool) {
    let start = Instant::now();
    while !fact() {
        assert!(start.elapsed() < Duration::from_secs(100), "waited in vain");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn an_error_of_the_start_arrives() {
    block_on(async {
        let batch = Batch::new().log("/no/such/folder/log");
        assert!(matches!(batch.run_async([Job::new("true")]).await, Err(BatchError::Log(_))));
    });
}
