//! Batches that lose their runner and their input: the log alone runs each job to its end, as the input describes it;
//! and ids, which belong to the input of a run.

use std::ffi::OsString;
use std::sync::Arc;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::job::{Identities, JobStdin, Record, Template};
use crate::journal::LogErrorKind;
use crate::{BatchError, JobId, LogView, OutputOptions};

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

// Ids belong to the input of a run, and the end of a job is final, whatever the next input calls it.

/// A job that does what the word says, and ends with the code.
fn job(id: &str, word: &str, code: i32) -> Job {
    Job::new("exit").arg(word).arg(code.to_string()).name(id)
}

/// Runs the jobs with the log, or those of the log, and returns the words that ran and the states by number.
fn run(batch: Batch, log: &Path, jobs: Option<Vec<Job>>) -> (Vec<String>, Vec<Said>) {
    // No attempt ends before all jobs were read: a batch that ends early reads no more.
    let (fake, gate) = Fake::held();
    let seen = Arc::clone(&fake.seen);
    let batch = batch.jobs(1);
    let mut run = match jobs {
        Some(jobs) => batch.log(log).resume(log.exists()).start_on(fake, jobs),
        None => batch.resume_log_on(fake, log),
    }
    .unwrap();
    let mut states = BTreeMap::new();
    for event in &mut run {
        match event.unwrap() {
            Event::InputEnded { .. } => gate.release(),
            Event::Settled { job, outcome, reason, before, .. } => {
                states.insert(job, Said { outcome, reason, before });
            }
            _ => {}
        }
    }
    run.finish().unwrap();
    let words = |seen: &Seen| seen.argv[1].to_string_lossy().into_owned();
    (seen.lock().unwrap().iter().map(words).collect(), states.into_values().collect())
}

/// Returns what the log says about jobs, by the words of their commands.
fn logged(log: &Path) -> BTreeMap<String, (i64, Option<String>, String)> {
    let connection = rusqlite::Connection::open(log).unwrap();
    let mut query = connection.prepare("SELECT command, number, name, state FROM jobs").unwrap();
    let rows = query.query_map([], |row| {
        Ok((row.get::<_, String>(0)?, (row.get(1)?, row.get(2)?, row.get(3)?)))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

#[test]
fn a_line_on_top_moves_ids_and_a_done_once_job_keeps_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("run.db");
    let once = || Batch::new().once(true);
    run(once(), &log, Some(vec![job("j0", "a", 0)]));
    let moved = || vec![job("j0", "new", 0), job("j1", "a", 0)];
    let (ran, states) = run(once(), &log, Some(moved()));
    assert_eq!((ran, &states[1]), (vec!["new".to_owned()], &succeeded_before()));
    let said = logged(&log);
    assert_eq!(said["exit a 0"], (2, Some("j1".into()), "succeeded".into()));
    // Also a job that is done is the one that the last input names.
    for jobs in [None, Some(moved())] {
        let (ran, states) = run(once(), &log, jobs);
        assert_eq!((ran.len(), states), (0, vec![succeeded_before(); 2]));
    }
}

#[test]
fn after_means_the_job_that_the_last_input_names() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("run.db");
    run(Batch::new(), &log, Some(vec![job("a", "x", 0), job("b", "y", 1)]));
    let main = || Job::new("exit").arg("main").arg("0").after("a");
    let swapped = vec![job("b", "x", 0), job("a", "y", 1), main()];
    let (ran, _) = run(Batch::new(), &log, Some(swapped));
    assert_eq!(ran, [""; 0]);
    let (ran, states) = run(Batch::new(), &log, None);
    assert_eq!(ran, [""; 0]);
    assert_eq!(states[2], said_with(JobOutcome::Skipped, "job 2 [a] did not succeed"));
}

#[test]
fn the_new_id_of_a_done_job_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("run.db");
    run(Batch::new(), &log, Some(vec![job("a", "x", 0)]));
    let renamed = || {
        vec![job("b", "x", 0), job("bad", "y", 1), Job::new("exit").args(["main", "0"]).after("b")]
    };
    run(Batch::new(), &log, Some(renamed()));
    let (ran, states) = run(Batch::new().retry_failed(true), &log, None);
    assert_eq!(ran, ["y"]);
    assert_eq!(states[2], succeeded_before());
}

#[test]
fn a_doubled_id_in_a_stream_overwrites_no_end() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("run.db");
    let once = || Batch::new().once(true);
    run(once(), &log, Some(vec![job("a", "x", 0)]));
    let (ran, states) = run(once(), &log, Some(vec![job("a", "y", 0), job("a", "x", 0)]));
    assert_eq!(ran, ["y"]);
    assert_eq!((states[1].outcome, states[1].before), (JobOutcome::Refused, false), "{states:?}");
    assert!(states[1].reason.is_some(), "{states:?}");
    assert_eq!(logged(&log)["exit x 0"].2, "succeeded");
    let (ran, states) = run(once(), &log, Some(vec![job("a", "x", 0)]));
    assert_eq!((ran.len(), states), (0, vec![succeeded_before()]));
}

#[test]
fn a_job_that_was_to_run_again_and_did_not_keeps_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("run.db");
    let jobs = || vec![job("a", "x", 1), job("b", "y", 1)];
    run(Batch::new(), &log, Some(jobs()));
    // The first one fails again, and the second one is not started.
    let batch = Batch::new().retry_failed(true).halt("soon,fail=1".parse().unwrap());
    let (ran, states) = run(batch, &log, Some(jobs()));
    assert_eq!((ran, &states[1]), (vec!["x".to_owned()], &said(JobOutcome::NotRun)));
    assert_eq!(logged(&log)["exit y 1"].2, "failed");
}

#[test]
fn a_once_job_that_was_stopped_is_unknown_and_does_not_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("run.db");
    let jobs = || [exits(0).once(true)];
    let (fake, _gate) = Fake::held();
    let mut first = Batch::new().log(&log).start_on(fake, jobs()).unwrap();
    let is_start = |event: Event| matches!(event, Event::Started { .. });
    assert!(first.by_ref().any(|event| is_start(event.unwrap())));
    first.control().stop();
    assert_eq!(first.finish().unwrap().unknown, 1);
    let (ran, states) = run(Batch::new(), &log, Some(jobs().into()));
    assert_eq!((ran.len(), states), (0, vec![said(JobOutcome::Unknown)]));
    let (ran, _) = run(Batch::new().rerun_unknown(true), &log, None);
    assert_eq!(ran.len(), 1);
}

#[test]
fn a_job_whose_answer_is_lost_is_unknown_and_does_not_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("run.db");
    let lost = Script::new([AttemptOutcome::Lost("cannot wait".to_owned())]);
    let first = Batch::new().log(&log).start_on(Fake::with(lost), [exits(0)]).unwrap();
    assert_eq!(first.finish().unwrap().unknown, 1);
    let (ran, states) = run(Batch::new(), &log, Some(vec![exits(0)]));
    assert_eq!((ran.len(), states), (0, vec![said(JobOutcome::Unknown)]));
    let (ran, states) = run(Batch::new().rerun_unknown(true), &log, None);
    assert_eq!((ran.len(), states), (1, vec![said(JobOutcome::Succeeded)]));
}

#[test]
fn a_success_without_its_output_is_not_done() {
    let folder = tempfile::tempdir().unwrap();
    let (log, out) = (folder.path().join("run.db"), folder.path().join("out"));
    let ids = |once: bool| JobId::new(&exits(0).once(once), 0);
    for (once, expected) in [(false, "interrupted"), (true, "unknown")] {
        let job = || exits(0).once(once).name("n");
        let after = Job::new("exit").arg("after").arg("0").after("n");
        // A folder stands in the place of the file.
        let path = out.join(format!("000001-{}", ids(once)));
        std::fs::create_dir_all(path.join("stdout")).unwrap();
        let mut output = OutputOptions::default();
        output.dir = Some(out.clone());
        let batch = || Batch::new().jobs(1).output(output.clone()).log(&log);
        let summary = batch().start_on(Fake::new(), [job(), after.clone()]).unwrap().finish();
        let summary = summary.unwrap();
        assert_eq!((summary.succeeded, summary.skipped, summary.exit_code()), (0, 1, 125));
        assert_eq!(logged(&log)["exit 0"].2, expected);
        std::fs::remove_dir_all(&out).unwrap();
        let again = batch().resume(true).start_on(Fake::new(), [job(), after]).unwrap().finish();
        assert_eq!(again.unwrap().succeeded, if once { 0 } else { 2 });
        std::fs::remove_dir_all(&out).unwrap();
        std::fs::remove_file(&log).unwrap();
    }
}

#[test]
fn the_log_has_the_words_that_run_next() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("run.db");
    let template =
        std::sync::Arc::new(crate::job::Template::parse(["exit", "{#}-{}", "1"]).unwrap());
    let jobs = |values: [&str; 2]| {
        let job = |(at, value)| template.job(at, crate::job::Record::new(value)).unwrap();
        (1..).zip(values).map(job).collect::<Vec<Job>>()
    };
    run(Batch::new(), &log, Some(jobs(["a", "b"])));
    let (ran, _) = run(Batch::new().retry_failed(true), &log, Some(jobs(["b", "a"])));
    assert_eq!(ran, ["1-b", "2-a"]);
    let mut planned = Vec::new();
    LogView::open(&log).unwrap().write_commands_to_run(true, false, &mut planned).unwrap();
    assert_eq!(String::from_utf8(planned).unwrap(), "exit 1-b 1\nexit 2-a 1\n");
}

#[test]
fn a_timeout_of_0_is_none() {
    let (fake, seen) = Fake::seeing();
    let jobs = [exits(0).timeout(Duration::ZERO), exits(0)];
    Batch::new().timeout(Duration::from_secs(9)).start_on(fake, jobs).unwrap().finish().unwrap();
    let seen: Vec<_> = seen.lock().unwrap().iter().map(|seen| seen.timeout).collect();
    assert_eq!(seen, [None, Some(Duration::from_secs(9))]);
}
