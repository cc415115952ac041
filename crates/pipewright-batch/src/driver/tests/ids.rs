//! Ids belong to the input of a run, and the end of a job is final, whatever the next input calls it.

use super::*;
use crate::{JobId, OutputOptions};

/// A job that does what the word says, and ends with the code.
fn job(id: &str, word: &str, code: i32) -> Job {
    Job::new("exit").arg(word).arg(code.to_string()).name(id)
}

/// Runs the jobs with the log, or those of the log, and returns the words that ran and the states by number.
fn run(batch: Batch, log: &Path, jobs: Option<Vec<Job>>) -> (Vec<String>, Vec<Said>) {
    let (fake, seen) = Fake::seeing();
    let batch = batch.jobs(1);
    let mut run = match jobs {
        Some(jobs) => batch.log(log).resume(log.exists()).start_on(fake, jobs),
        None => batch.resume_log_on(fake, log),
    }
    .unwrap();
    let mut states = BTreeMap::new();
    for event in &mut run {
        if let Event::Settled { job, outcome, reason, before, .. } = event.unwrap() {
            states.insert(job, Said { outcome, reason, before });
        }
    }
    run.finish().unwrap();
    let words = |seen: &fake::Seen| seen.argv[1].to_string_lossy().into_owned();
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
    assert_eq!(states[2], said_with(JobOutcome::Skipped, "job 2 did not succeed"));
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
