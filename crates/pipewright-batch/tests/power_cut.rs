//! Power cuts while a batch writes its log, on a disk of the device mapper. `ci/kernels.sh power-cut` runs this in a
//! machine with spare disks.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use pipewright::Source;
use pipewright_batch::{
    Attempt, AttemptEnd, AttemptKey, AttemptOutcome, Batch, Event, Executor, ExecutorEvent, Job,
    JobOutcome, MachineMemory, OutputOptions,
};
use pipewright_test_macros::isolated_test;
use pipewright_tests::mapped_disk::{self, MappedDisk, WriteLog, spare_disks};
use pipewright_tests::{mounts, pace, skip};

const JOBS: u64 = 60;

/// Jobs of which every other one may run only once.
fn jobs() -> Vec<Job> {
    (1..=JOBS).map(|number| Job::new("job").arg(number.to_string()).once(number % 2 == 0)).collect()
}

/// An executor whose jobs end at once. It calls a function at each start.
struct Instantly<F> {
    started: F,
    /// Its jobs write their output.
    writes: bool,
    ended: VecDeque<AttemptKey>,
}

impl<F: FnMut(u64) + Send> Executor for Instantly<F> {
    fn start(&mut self, mut attempt: Attempt) {
        (self.started)(attempt.key.job);
        if let Some(output) = attempt.output.as_mut().filter(|_| self.writes) {
            output.write(Source::Stdout, output_of(attempt.key.job).as_bytes());
        }
        self.ended.push_back(attempt.key);
    }

    fn stop(&mut self, _: AttemptKey) {}

    fn next_event(&mut self, until: Option<Instant>) -> io::Result<Option<ExecutorEvent>> {
        let Some(key) = self.ended.pop_front() else {
            let pause = Duration::from_millis(1);
            let left = until.map_or(pause, |until| until.saturating_duration_since(Instant::now()));
            std::thread::park_timeout(left.min(pause));
            return Ok(None);
        };
        let end =
            AttemptEnd::new(key, AttemptOutcome::Exited(0), SystemTime::now(), Duration::ZERO);
        Ok(Some(ExecutorEvent::Ended(Box::new(end))))
    }

    fn memory(&mut self) -> Option<MachineMemory> {
        None
    }

    fn waker(&mut self) -> io::Result<Box<dyn Fn() + Send + Sync>> {
        Ok(Box::new(|| ()))
    }
}

fn executor<F: FnMut(u64) + Send>(started: F) -> Instantly<F> {
    Instantly { started, writes: false, ended: VecDeque::new() }
}

fn output_of(job: u64) -> String {
    format!("the output of job {job}\n").repeat(100)
}

/// A mark follows the start of each job, and so its intent. For a cut at any place the disk is made again: everything
/// until the last flush before it, and any part of what came after. The log has to open, and to know each job that was
/// started.
#[isolated_test(limit = pace::seconds(300))]
fn no_started_job_is_forgotten_after_a_power_cut() {
    let [disk, log_disk] = match spare_disks() {
        Ok(disks) => disks,
        Err(lack) => return lack.skip(),
    };
    let folder = tempfile::tempdir().unwrap();
    mounts::private().unwrap();
    {
        let mapped = MappedDisk::with_log("pipewright-batch", &disk, &log_disk).unwrap();
        let mapped = Arc::new(mapped);
        let mounted = mounts::mount_disk(folder.path(), mapped.path(), "ext4").unwrap();
        mapped.mark("made").unwrap();
        let marking = Arc::clone(&mapped);
        let started = move |job: u64| marking.mark(&format!("started:{job}")).unwrap();
        let batch = Batch::new().jobs(3).log(mounted.path().join("run.db"));
        let summary = batch.start_on(executor(started), jobs()).unwrap().finish().unwrap();
        assert_eq!(summary.succeeded, JOBS);
        mapped.mark("finished").unwrap();
    }
    let writes = WriteLog::read(&log_disk).unwrap();
    let (mut checked, mut interrupted) = (0, 0);
    let lost = mapped_disk::cut_at_random(&writes, &disk, folder.path(), "made", 60, |cut| {
        let mounted = mounts::mount_image(folder.path(), cut.image, "ext4", "rw").unwrap();
        let log = mounted.path().join("run.db");
        let may_have_run = |job: u64| cut.marks.contains(&&*format!("started:{job}"));
        let is_finished = cut.marks.contains(&"finished");
        let any = (1..=JOBS).any(may_have_run);
        assert!(log.exists() || !any, "cut {}: the log is gone", cut.at);
        for (job, is_old, ran) in resumed(&log) {
            let is_once = job % 2 == 0;
            // A job that may run only once is not run again once it has been started.
            assert!(!(is_once && ran && may_have_run(job)), "cut {}: job {job} ran twice", cut.at);
            assert!(!is_finished || is_old, "{job}");
            interrupted += usize::from(may_have_run(job) && !is_old);
            checked += usize::from(is_once && may_have_run(job));
        }
    });
    assert!(checked > 0 && interrupted > 0, "no cut was in the middle");
    skip::counted(&format!(
        "{} writes, {checked} started jobs were known after 61 cuts that lost {} writes, {interrupted} of all were \
         interrupted",
        writes.writes.len(),
        lost.unwrap(),
    ));
}

/// Each job writes to a folder on the same disk. After a cut at any place, a job that the log has as ok has all of its
/// output.
#[isolated_test(limit = pace::seconds(300))]
fn the_output_of_a_recorded_success_survives_a_power_cut() {
    let [disk, log_disk] = match spare_disks() {
        Ok(disks) => disks,
        Err(lack) => return lack.skip(),
    };
    let folder = tempfile::tempdir().unwrap();
    mounts::private().unwrap();
    let jobs = || (1..=JOBS).map(|number| Job::new("job").arg(number.to_string()));
    let batch = |mounted: &Path| {
        let mut output = OutputOptions::default();
        output.dir = Some(mounted.join("out"));
        output.mode = pipewright_batch::OutputMode::Discard;
        Batch::new().jobs(3).log(mounted.join("run.db")).output(output)
    };
    let writing = || Instantly { writes: true, ..executor(|_| ()) };
    {
        let mapped = MappedDisk::with_log("pipewright-output", &disk, &log_disk).unwrap();
        let mounted = mounts::mount_disk(folder.path(), mapped.path(), "ext4").unwrap();
        mapped.mark("made").unwrap();
        let summary = batch(mounted.path()).start_on(writing(), jobs()).unwrap().finish().unwrap();
        assert_eq!(summary.succeeded, JOBS);
        mapped.mark("finished").unwrap();
    }
    let writes = WriteLog::read(&log_disk).unwrap();
    let mut checked = 0;
    let lost = mapped_disk::cut_at_random(&writes, &disk, folder.path(), "made", 60, |cut| {
        let mounted = mounts::mount_image(folder.path(), cut.image, "ext4", "rw").unwrap();
        let log = mounted.path().join("run.db");
        if !log.exists() {
            return;
        }
        let mut run = batch(mounted.path()).resume(true).start_on(writing(), jobs()).unwrap();
        for event in &mut run {
            let event = event.unwrap();
            let Event::Settled { job, id, outcome, before: true, .. } = event else { continue };
            if outcome == JobOutcome::Succeeded {
                let out = mounted.path().join(format!("out/{job:06}-{id}"));
                let stdout = std::fs::read_to_string(out.join("stdout"));
                assert_eq!(stdout.ok().as_deref(), Some(&*output_of(job)), "cut {}: {job}", cut.at);
                assert!(std::fs::metadata(out.join("job.json")).unwrap().len() > 0, "{job}");
                checked += 1;
            }
        }
        run.finish().unwrap();
    });
    assert!(checked > 0, "no cut was in the middle");
    skip::counted(&format!(
        "{} writes, {checked} successes had their output after 61 cuts that lost {} writes",
        writes.writes.len(),
        lost.unwrap(),
    ));
}

/// Resumes the batch. Returns each job, with true if it has succeeded before, and with true if it was started.
fn resumed(log: &Path) -> Vec<(u64, bool, bool)> {
    let started = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&started);
    let executor = executor(move |job| noted.lock().unwrap().push(job));
    let batch = Batch::new().jobs(3).log(log).resume(log.exists());
    let mut states = Vec::new();
    let mut run = batch.start_on(executor, jobs()).unwrap();
    for event in &mut run {
        if let Event::Settled { job, outcome, before, .. } = event.unwrap() {
            states.push((job, before && outcome == JobOutcome::Succeeded));
        }
    }
    run.finish().unwrap();
    let started = started.lock().unwrap();
    assert_eq!(states.len() as u64, JOBS);
    states.into_iter().map(|(job, is_old)| (job, is_old, started.contains(&job))).collect()
}
