//! Batches that lose their runner and their input: the log alone runs each job to its end, as the input describes it.

use std::ffi::OsString;
use std::sync::Arc;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use super::fake::Seen;
use super::*;
use crate::job::{Identities, JobId, JobStdin, Record, Template};
use crate::journal::LogErrorKind;
use crate::{BatchError, LogView};

fn jobs() -> impl Strategy<Value = Vec<Job>> {
    let word = "[a-b '\\n{}#%\u{e9}]{0,3}";
    let parts = (0..4_u32, vec(word, 0..2), 0..3_i32, vec(0..12_usize, 0..2));
    let settings = (
        btree_map("[A-C]", option::of(word), 0..2),
        option::of(vec(any::<u8>(), 0..4)),
        option::of(1..9_u64),
        option::of(any::<bool>()),
        option::of("[de]"),
    );
    vec((parts, settings), 0..12).prop_map(|jobs| {
        let template = Arc::new(Template::parse(["exit", "{#}-{%}", "{}"]).unwrap());
        type Parts = (u32, Vec<String>, i32, Vec<usize>);
        type Texts = BTreeMap<String, Option<String>>;
        type Settings = (Texts, Option<Vec<u8>>, Option<u64>, Option<bool>, Option<String>);
        let job = |(at, (parts, settings)): (usize, (Parts, Settings))| {
            let (kind, args, code, after) = parts;
            let (env, stdin, timeout, once, dir) = settings;
            let job = match kind {
                0 => Job::shell("exit"),
                1 => template.job(at as u64 + 1, Record::new("value")).unwrap(),
                _ => Job::new("exit"),
            };
            let mut job = job.args(args).arg(code.to_string()).name(format!("j{at}"));
            // Only earlier jobs: no circles.
            for name in after.into_iter().filter(|name| *name < at) {
                job = job.after(format!("j{name}"));
            }
            job = env.into_iter().fold(job, |job, (name, value)| match value {
                Some(value) => job.env(name, value),
                None => job.env_remove(name),
            });
            job = stdin.into_iter().fold(job, |job, bytes| job.stdin(JobStdin::Bytes(bytes)));
            job =
                timeout.into_iter().fold(job, |job, secs| job.timeout(Duration::from_millis(secs)));
            job = once.into_iter().fold(job, Job::once);
            dir.into_iter().fold(job, Job::current_dir)
        };
        jobs.into_iter().enumerate().map(job).collect()
    })
}

/// Checks that an attempt runs what the job says.
fn check(seen: &Seen, number: u64, job: &Job) {
    let variable = |wanted: &str| {
        let found = seen.env.iter().find(|(name, _)| name == wanted);
        found.and_then(|(_, value)| value.as_ref()?.to_str()?.parse().ok())
    };
    let slot = variable("PIPEWRIGHT_SLOT").unwrap();
    assert_eq!(seen.argv, job.argv(u32::try_from(slot).unwrap()).unwrap());
    assert_eq!(variable("PIPEWRIGHT_JOB"), Some(number));
    let own = |name: &std::ffi::OsStr| !name.to_string_lossy().starts_with("PIPEWRIGHT_");
    let env = seen.env.iter().filter(|(name, _)| own(name));
    let env: Vec<_> = env.map(|(name, value)| (name.as_os_str(), value.as_deref())).collect();
    assert_eq!(env, job.get_envs().collect::<Vec<_>>());
    assert_eq!(seen.current_dir.as_deref(), job.get_current_dir());
    assert_eq!((&seen.stdin, seen.timeout), (job.get_stdin(), job.get_timeout()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_log_alone_runs_what_its_input_describes(
        jobs in jobs(), events in 0..40_usize, slots in 1..4_u32, drain in any::<bool>()
    ) {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("run.db");
        let batch = || Batch::new().jobs(slots);
        let mut identities = Identities::new();
        let ids: Vec<JobId> = jobs.iter().map(|job| identities.next_id(job)).collect();

        // A run that is killed, or ends early.
        let mut run = batch().log(&log).start_on(Fake::new(), jobs.clone()).unwrap();
        run.by_ref().take(events).for_each(|event| { event.unwrap(); });
        if drain {
            run.control().drain();
            run.finish().unwrap();
        } else {
            drop(run);
        }

        let (fake, seen) = Fake::seeing();
        let resumed = batch().retry_failed(true).rerun_unknown(true).resume_log_on(fake, &log);
        let run = match resumed {
            Ok(run) => Some(run),
            Err(BatchError::Log(error)) => {
                let lacks_input = matches!(error.kind(), LogErrorKind::LacksInput { .. });
                prop_assert!(lacks_input, "{}", error);
                None
            }
            Err(error) => panic!("{error}"),
        };
        if let Some(mut run) = run {
            let mut settled = BTreeMap::new();
            for event in &mut run {
                if let Event::Settled { job, id, .. } = event.unwrap() {
                    prop_assert!(settled.insert(job, id).is_none(), "job {} is settled twice", job);
                }
            }
            run.finish().unwrap();
            let expected: BTreeMap<u64, JobId> = (1..).zip(ids.iter().copied()).collect();
            prop_assert_eq!(settled, expected);
        }
        for seen in seen.lock().unwrap().iter() {
            let at = ids.iter().position(|id| *id == seen.id).unwrap();
            check(seen, at as u64 + 1, &jobs[at]);
        }

        // With the input: what the log alone has done is done.
        let was_complete = !seen.lock().unwrap().is_empty();
        let (fake, seen) = Fake::seeing();
        let summary = batch().log(&log).resume(true).start_on(fake, jobs.clone()).unwrap();
        let summary = summary.finish().unwrap();
        if was_complete {
            prop_assert!(seen.lock().unwrap().is_empty(), "{:?}", seen.lock());
        }
        prop_assert_eq!(summary.succeeded + summary.failed + summary.skipped + summary.unknown, jobs.len() as u64);
        // And then the log has all jobs.
        let (fake, seen) = Fake::seeing();
        batch().resume_log_on(fake, &log).unwrap().finish().unwrap();
        prop_assert!(seen.lock().unwrap().is_empty(), "{:?}", seen.lock());
        let mut planned = Vec::new();
        LogView::open(&log).unwrap().write_commands_to_run(false, false, &mut planned).unwrap();
        let skipped = LogView::open(&log).unwrap().summary().unwrap().contains("skipped");
        prop_assert!(planned.is_empty() || skipped, "{:?}", String::from_utf8_lossy(&planned));
    }
}

#[test]
fn a_job_that_another_input_has_moved_has_a_number_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("run.db");
    let job = |word: &str| Job::new("exit").arg(word).arg("1");
    Batch::new().log(&log).start_on(Fake::new(), ["a", "b"].map(job)).unwrap().finish().unwrap();
    // Failed ones stay as they are, and keep their numbers.
    let moved = Batch::new().log(&log).resume(true);
    moved.start_on(Fake::new(), ["new", "a", "b"].map(job)).unwrap().finish().unwrap();
    let (fake, seen) = Fake::seeing();
    let run = Batch::new().jobs(1).retry_failed(true).resume_log_on(fake, &log).unwrap();
    assert_eq!(run.finish().unwrap().failed, 3);
    let seen = seen.lock().unwrap();
    let words: Vec<_> = seen.iter().map(|seen| seen.argv[1].clone()).collect();
    assert_eq!(words, ["new", "a", "b"]);
    (1..).zip(&*seen).for_each(|(number, seen)| {
        let number = (OsString::from("PIPEWRIGHT_JOB"), Some(OsString::from(number.to_string())));
        assert!(seen.env.contains(&number), "{seen:?}");
    });
}
