//! The output directory: a folder a job, which a later run uses again; and a temporary disk that is full.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::*;
use crate::output::content::{OpenSpool, SpoolFile, open_temporary_file};
use crate::output::{OutputError, OutputErrorKind};

fn batch(dir: &Path, mode: OutputMode) -> Batch {
    Batch::new(OutputOptions { dir: Some(dir.join("out")), ..options(mode) })
}

fn facts(folder: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(folder.join("job.json")).unwrap()).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

#[test]
fn a_job_has_a_folder_with_its_streams_and_its_facts() {
    let dir = tempfile::tempdir().unwrap();
    let mut batch = batch(dir.path(), OutputMode::Group);
    let job = JobInfo { name: Some("fetch".to_owned()), ..info(7) };
    batch.begin_as(key(7, 2), job.clone());
    batch.out(7, flood(100_000));
    batch.err(7, "err\n");
    let summary = batch.end(7);
    let folder = summary.path.unwrap();
    assert_eq!(folder, dir.path().join("out").join(format!("000007-{}", job.id)));
    assert_eq!(names(&folder), ["job.json", "stderr", "stdout"]);
    assert!(fs::read(folder.join("stdout")).unwrap() == flood(100_000));
    assert_eq!(fs::read(folder.join("stderr")).unwrap(), b"err\n");
    let expected = serde_json::json!({
        "schema": "pipewright.job/1",
        "number": 7,
        "id": job.id.to_string(),
        "name": "fetch",
        "command": "job 7",
        "attempt": 2,
        "outcome": "exited",
        "exit_code": 3,
        "signal": null,
        "error": null,
        "started_unix_seconds": 1.5,
        "elapsed_seconds": 0.25,
        "user_seconds": null,
        "system_seconds": null,
        "peak_rss_bytes": null,
        "stdout_bytes": 100_000,
        "stderr_bytes": 4,
        "truncated": false,
        "leftovers_killed": 0,
    });
    assert_eq!(facts(&folder), expected);
    assert!(batch.close().0 == flood(100_000), "it is printed as well");
}

#[test]
fn files_without_tags_and_within_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let limited = OutputOptions {
        dir: Some(dir.path().to_owned()),
        tag: true,
        max_bytes: Some(5),
        ..options(OutputMode::Discard)
    };
    let mut batch = Batch::new(limited);
    let summary = batch.run(1, "0123456789");
    assert!(summary.truncated && summary.error.is_none());
    let folder = summary.path.unwrap();
    assert_eq!(fs::read(folder.join("stdout")).unwrap(), b"01234");
    assert_eq!(fs::read(folder.join("stderr")).unwrap(), b"");
    assert_eq!(facts(&folder)["truncated"], true);
    assert_eq!(facts(&folder)["stdout_bytes"], 10);
    assert_eq!(batch.close().0, b"");
}

#[test]
fn output_is_in_the_files_while_the_job_runs() {
    let dir = tempfile::tempdir().unwrap();
    let mut batch = batch(dir.path(), OutputMode::Discard);
    batch.begin(1);
    batch.out(1, "running");
    let name = format!("000001-{}", info(1).id);
    let folder = dir.path().join("out").join(name);
    assert_eq!(fs::read(folder.join("stdout")).unwrap(), b"running");
    assert!(!folder.join("job.json").exists(), "facts come with the end");
    batch.end(1);
    assert!(folder.join("job.json").exists());
}

#[test]
fn a_later_run_uses_the_folder_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = batch(dir.path(), OutputMode::Discard);
    let done = first.run(1, "done").path.unwrap();
    first.begin(2);
    first.out(2, "interrupted, with a long text");
    first.err(2, "interrupted");
    drop(first);
    let mut second = batch(dir.path(), OutputMode::Discard);
    second.begin(2);
    let folder = dir.path().join("out").join(format!("000002-{}", info(2).id));
    assert_eq!(names(&folder), [""; 0], "nothing of the earlier attempt is left");
    second.out(2, "again");
    assert_eq!(second.end(2).path.unwrap(), folder);
    assert_eq!(fs::read(folder.join("stdout")).unwrap(), b"again");
    assert_eq!(fs::read(folder.join("stderr")).unwrap(), b"");
    assert_eq!(fs::read(done.join("stdout")).unwrap(), b"done", "others are not touched");
    // The log knows a folder that has another number.
    second.begin_as(key(9, 1), JobInfo { folder: Some(folder.clone()), ..info(2) });
    assert_eq!(names(&folder), [""; 0], "facts never stand beside the output of another attempt");
    second.out(9, "moved");
    assert_eq!(second.end(9).path.unwrap(), folder);
    assert_eq!(fs::read(folder.join("stdout")).unwrap(), b"moved");
    assert_eq!(names(&dir.path().join("out")).len(), 2);
}

#[test]
fn the_folder_has_the_last_attempt() {
    let dir = tempfile::tempdir().unwrap();
    let mut batch = batch(dir.path(), OutputMode::Group);
    batch.begin(1);
    batch.out(1, "the first attempt");
    let folder = batch.finish(1, false).path.unwrap();
    assert_eq!(names(&folder), ["stdout"], "no facts: it is run again");
    batch.begin_as(key(1, 2), info(1));
    batch.err(1, "the second");
    batch.end(1);
    assert_eq!(fs::read(folder.join("stdout")).unwrap(), b"");
    assert_eq!(fs::read(folder.join("stderr")).unwrap(), b"the second");
    assert_eq!(facts(&folder)["attempt"], 2);
}

#[test]
fn the_ends_of_attempts_are_in_the_facts() {
    let dir = tempfile::tempdir().unwrap();
    let mut batch = batch(dir.path(), OutputMode::Discard);
    let mut facts_of = |job, outcome| {
        drop(batch.output.begin(key(job, 1), info(job)));
        let end = AttemptEnd { outcome, ..end_of(key(job, 1)) };
        facts(&batch.output.finish(&end, true).path.unwrap())
    };
    let killed = facts_of(1, AttemptOutcome::Signaled(9));
    assert_eq!((&killed["outcome"], &killed["signal"]), (&"signaled".into(), &"SIGKILL".into()));
    assert_eq!(killed["exit_code"], serde_json::Value::Null);
    let missing = facts_of(2, AttemptOutcome::NotStarted("no such program".to_owned()));
    assert_eq!(missing["error"], "no such program");
    assert_eq!(facts_of(3, AttemptOutcome::TimedOut)["outcome"], "timed_out");
}

#[test]
fn a_folder_that_cannot_be_made_is_reported_and_the_output_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let mut batch = batch(dir.path(), OutputMode::Group);
    let path = dir.path().join("out").join(format!("000001-{}", info(1).id));
    fs::write(&path, "a file").unwrap();
    let summary = batch.run(1, "printed\n");
    let error = summary.error.unwrap();
    assert!(matches!(error.kind(), OutputErrorKind::Folder(_)), "{error}");
    assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
    assert_eq!((summary.truncated, summary.path), (true, None));
    // The next job has its folder.
    assert!(batch.run(2, "").error.is_none());
    assert_eq!(batch.close().0, b"printed\n");
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let options = OutputOptions { dir: Some(file.join("x")), ..options(OutputMode::Group) };
    let refused = Output::new(options, io::sink(), io::sink(), no_waker()).unwrap_err();
    assert!(matches!(refused.kind(), OutputErrorKind::Folder(_)));
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_cannot_be_written_is_reported_and_its_rest_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let mut batch = batch(dir.path(), OutputMode::Group);
    batch.begin(1);
    let folder = dir.path().join("out").join(format!("000001-{}", info(1).id));
    std::os::unix::fs::symlink("/dev/full", folder.join("stdout")).unwrap();
    batch.out(1, "printed ");
    batch.out(1, "all the same\n");
    batch.err(1, "err\n");
    let summary = batch.end(1);
    let error = summary.error.unwrap();
    assert_eq!(error.kind(), &OutputErrorKind::Folder(folder.join("stdout")));
    assert!(summary.truncated);
    assert_eq!(facts(&folder)["truncated"], true);
    assert_eq!(fs::read(folder.join("stderr")).unwrap(), b"err\n");
    assert_eq!(batch.close().0, b"printed all the same\n");
}

/// Each of these would be written through, or waited for, by a plain open of the name.
#[cfg(unix)]
#[test]
fn links_and_pipes_in_the_place_of_a_jobs_files_are_not_followed() {
    use std::os::unix::fs::symlink;
    let plants: [fn(&Path, &Path); 2] = [
        |path, victim| symlink(victim, path).unwrap(),
        |path, _| {
            let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
            assert!(made.success());
        },
    ];
    for plant in plants {
        for name in ["stdout", "stderr", "job.json.new", "job.json"] {
            let dir = tempfile::tempdir().unwrap();
            let victim = dir.path().join("victim");
            fs::write(&victim, "old").unwrap();
            let mut batch = batch(dir.path(), OutputMode::Discard);
            let folder = dir.path().join("out").join(crate::output::folder::name(1, info(1).id));
            batch.begin(1);
            plant(&folder.join(name), &victim);
            batch.out(1, "new");
            let summary = batch.end(1);
            assert_eq!(fs::read(&victim).unwrap(), b"old", "{name}");
            // What the job itself has replaced is lost, and told.
            let is_lost = matches!(name, "stdout" | "stderr");
            assert_eq!(summary.error.is_some(), is_lost, "{name}: {:?}", summary.error);
            batch.close();
        }
    }
}

#[cfg(unix)]
#[test]
fn a_folder_that_was_put_in_the_place_of_a_jobs_is_not_written() {
    use std::os::unix::fs::symlink;
    for is_link in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let other = dir.path().join("other");
        fs::create_dir(&other).unwrap();
        let mut batch = batch(dir.path(), OutputMode::Discard);
        batch.begin(1);
        let folder = dir.path().join("out").join(crate::output::folder::name(1, info(1).id));
        fs::remove_dir(&folder).unwrap();
        match is_link {
            true => symlink(&other, &folder).unwrap(),
            false => fs::rename(&other, &folder).unwrap(),
        }
        batch.out(1, "new");
        assert!(batch.end(1).error.is_some());
        let target = if is_link { &other } else { &folder };
        assert_eq!(names(target), [""; 0]);
        // Nor is a link that was there before.
        if is_link {
            assert!(batch.run(1, "new").error.is_some());
            assert_eq!(names(&other), [""; 0]);
        }
        batch.close();
    }
}

#[cfg(unix)]
#[test]
fn private_output_is_for_its_owner_alone() {
    use std::os::unix::fs::MetadataExt as _;
    let dir = tempfile::tempdir().unwrap();
    let private = OutputOptions {
        dir: Some(dir.path().join("out")),
        private: true,
        ..options(OutputMode::Discard)
    };
    let mut batch = Batch::new(private);
    let folder = batch.run(1, "text").path.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(folder.parent().unwrap()), mode(&folder)), (0o700, 0o700));
    for name in ["stdout", "stderr", "job.json"] {
        assert_eq!(mode(&folder.join(name)), 0o600, "{name}");
    }
}

/// In `/tmp`, whoever makes a link first would choose what root writes over.
#[cfg(unix)]
#[test]
fn no_link_of_another_user_is_followed_where_he_may_make_names() {
    use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};

    use pipewright_os::base::private_file::{self, Distrust, distrust};
    use pipewright_tests::skip;
    const OTHER: u32 = 65_533;
    if !skip::is_root() {
        return skip::skipped(skip::Need::Root, "needs root, to make links of another user");
    }
    let dir = tempfile::tempdir().unwrap();
    let (link, target) = (dir.path().join("link"), dir.path().join("target"));
    symlink(&target, &link).unwrap();
    lchown(&link, Some(OTHER), Some(OTHER)).unwrap();
    let distrusted = || distrust(&private_file::create(&link, false).unwrap_err());
    for (mode, owner) in [(0o1777, 0), (0o777, 0), (0o755, OTHER)] {
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
        chown(dir.path(), Some(owner), None).unwrap();
        assert_eq!(distrusted(), Some(Distrust::LinkOfOther(OTHER)), "{mode:o} {owner}");
        assert!(!target.exists());
        let options = OutputOptions { dir: Some(link.clone()), ..options(OutputMode::Discard) };
        let error = Output::new(options, io::sink(), io::sink(), Box::new(|| {})).unwrap_err();
        assert!(error.to_string().contains("has a link that user 65533 has made"), "{error}");
        // The same for one on the way.
        let below = private_file::create(&link.join("below"), false).unwrap_err();
        assert_eq!(distrust(&below), Some(Distrust::LinkOfOther(OTHER)), "{mode:o} {owner}");
    }
    // A link of one's own, and one where nobody else may make names.
    chown(dir.path(), Some(0), None).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    private_file::create(&link, false).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    lchown(&link, Some(0), Some(0)).unwrap();
    private_file::create(&link, true).unwrap();
    // A private file of somebody else could be opened to all again.
    chown(&target, Some(OTHER), Some(OTHER)).unwrap();
    let error = private_file::create(&target, true).unwrap_err();
    assert_eq!(distrust(&error), Some(Distrust::OtherOwner(OTHER)));
    // He reads what comes through his pipe.
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let _both = fs::File::options().read(true).write(true).open(&pipe).unwrap();
    private_file::create(&pipe, true).unwrap();
    chown(&pipe, Some(OTHER), Some(OTHER)).unwrap();
    let error = private_file::create(&pipe, true).unwrap_err();
    assert_eq!(distrust(&error), Some(Distrust::OtherOwner(OTHER)));
}

/// He may put his link in the place of nothing between a look at the name and the open.
#[cfg(unix)]
#[test]
fn no_link_is_followed_that_comes_after_the_look() {
    use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};

    use pipewright_os::base::private_file;
    use pipewright_tests::skip;
    use std::sync::atomic::{AtomicBool, Ordering};
    const OTHER: u32 = 65_533;
    if !skip::is_root() {
        return skip::skipped(skip::Need::Root, "needs root, to make links of another user");
    }
    let dir = tempfile::tempdir().unwrap();
    // Without the sticky bit, the kernel itself follows such links.
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let (link, target) = (dir.path().join("link"), dir.path().join("target"));
    let (theirs, is_over) = (dir.path().join("theirs"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                symlink(&target, &theirs).unwrap();
                lchown(&theirs, Some(OTHER), Some(OTHER)).unwrap();
                fs::rename(&theirs, &link).unwrap();
                let _ = fs::remove_file(&link);
            }
        });
        let mut times = [0, 0];
        while times.iter().any(|times| *times < 2_000) && !target.exists() {
            let created = private_file::create(&link, false);
            times[usize::from(created.is_ok())] += 1;
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(!target.exists());
}

#[cfg(unix)]
#[test]
fn private_output_is_not_written_to_a_folder_or_a_file_of_another_user() {
    use std::os::unix::fs::chown;

    use pipewright_tests::skip;
    const OTHER: u32 = 65_533;
    if !skip::is_root() {
        return skip::skipped(skip::Need::Root, "needs root, to make files of another user");
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let private =
        OutputOptions { dir: Some(out.clone()), private: true, ..options(OutputMode::Discard) };
    let mut batch = Batch::new(private);
    let folder = |job| out.join(crate::output::folder::name(job, info(job).id));
    fs::create_dir_all(folder(1)).unwrap();
    chown(folder(1), Some(OTHER), Some(OTHER)).unwrap();
    assert!(batch.run(1, "text").error.is_some());
    assert_eq!(names(&folder(1)), [""; 0]);
    batch.begin(2);
    let file = folder(2).join("stdout");
    fs::write(&file, "").unwrap();
    chown(&file, Some(OTHER), Some(OTHER)).unwrap();
    batch.out(2, "text");
    assert!(batch.end(2).error.is_some());
    assert_eq!(fs::read_to_string(&file).unwrap(), "");
    batch.close();
}

// If the temporary disk is full, the output of a job is cut and reported, and the batch goes on.

/// A disk with this many bytes left.
#[derive(Debug)]
struct Disk(Arc<dyn SpoolFile>, Arc<AtomicI64>);

impl SpoolFile for Disk {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let left = usize::try_from(self.1.load(Ordering::Relaxed)).unwrap_or(0);
        let fits = bytes.get(..left.min(bytes.len())).filter(|fits| !fits.is_empty());
        let fits = fits.ok_or(io::ErrorKind::StorageFull)?;
        let written = self.0.write_at(fits, offset)?;
        self.1.fetch_sub(written as i64, Ordering::Relaxed);
        Ok(written)
    }
}

fn with_disk(bytes: i64, options: OutputOptions) -> (OutputOptions, Arc<AtomicI64>) {
    let left = Arc::new(AtomicI64::new(bytes));
    let to = Arc::clone(&left);
    let open_spool: OpenSpool =
        Arc::new(move || Ok(Arc::new(Disk(open_temporary_file()?, Arc::clone(&to)))));
    (OutputOptions { open_spool, ..options }, left)
}

#[track_caller]
fn is_full(error: Option<OutputError>, stream: Source) {
    let error = error.expect("the loss is reported");
    assert_eq!(error.kind(), &OutputErrorKind::Spool(stream));
    let source = error.source().unwrap().downcast_ref::<io::Error>().unwrap();
    assert_eq!(source.kind(), io::ErrorKind::StorageFull);
    let text = error.to_string();
    assert!(text.contains("its rest is lost") && !text.contains('\n'), "{text}");
}

#[test]
fn the_first_part_is_printed_and_the_batch_goes_on() {
    let (options, left) = with_disk(100_000, options(OutputMode::Group));
    let mut batch = Batch::new(options);
    batch.begin(1);
    batch.begin(2);
    batch.out(2, "small, in memory\n");
    batch.out(1, flood(40_000));
    batch.out(1, &flood(400_000)[40_000..]);
    batch.out(1, "later");
    batch.err(1, "why\n");
    let summary = batch.end(1);
    assert!(summary.truncated);
    assert_eq!((summary.stdout_bytes, summary.stderr_bytes), (400_005, 4));
    assert_eq!(summary.tail, "why");
    is_full(summary.error, Source::Stdout);
    let whole = batch.end(2);
    assert!(!whole.truncated && whole.error.is_none());
    // There is room again.
    left.store(1 << 30, Ordering::Relaxed);
    let whole = batch.run(3, flood(300_000));
    assert!(!whole.truncated && whole.error.is_none());
    let (out, err) = batch.close();
    let expected = [flood(100_000), b"small, in memory\n".to_vec(), flood(300_000)].concat();
    assert!(out == expected && err == b"why\n");
}

#[test]
fn a_file_that_cannot_be_opened_is_reported_too() {
    let open_spool: OpenSpool = Arc::new(|| Err(io::ErrorKind::StorageFull.into()));
    let mut batch = Batch::new(OutputOptions { open_spool, ..options(OutputMode::Group) });
    let summary = batch.run(1, flood(100_000));
    is_full(summary.error, Source::Stdout);
    batch.run(2, "small\n");
    assert_eq!(batch.close().0, b"small\n");
}

#[test]
fn outputs_that_wait_stay_in_memory_if_the_file_cannot_take_them() {
    let (options, _) = with_disk(0, options(OutputMode::Group));
    let mut batch = Batch::new(OutputOptions { keep_order: true, ..options });
    batch.begin(1);
    let mut lost = 0;
    for job in 2..=5000 {
        let summary = batch.run(job, flood(8192));
        lost += usize::from(summary.truncated);
        assert_eq!(summary.error.is_some(), summary.truncated);
    }
    // As many as memory has, and each of them is whole.
    assert!(lost > 0 && lost < 4000, "{lost}");
    batch.end(1);
    let (out, _) = batch.close();
    assert_eq!(out.len(), (4999 - lost) * 8192);
    assert!(out.chunks(8192).all(|one| one == flood(8192)));
}

#[test]
fn lines_are_not_mixed_if_one_is_cut() {
    for keep_order in [false, true] {
        let (options, _) = with_disk(50_000, options(OutputMode::LineBuffer));
        let mut batch = Batch::new(OutputOptions { keep_order, ..options });
        batch.begin(1);
        batch.begin(2);
        batch.out(2, "two\n");
        // Longer than what the disk takes.
        batch.out(1, "one\n");
        batch.out(1, vec![b'1'; 40_000]);
        batch.out(1, vec![b'1'; 40_000]);
        batch.out(1, "\nlater\n");
        let summary = batch.end(1);
        is_full(summary.error, Source::Stdout);
        batch.out(2, "three\n");
        batch.end(2);
        let (out, _) = batch.close_to_text();
        let mut lines: Vec<&str> = out.lines().collect();
        lines.sort_unstable();
        let cut = lines.iter().position(|line| line.starts_with('1')).unwrap();
        assert!(lines[cut].bytes().all(|byte| byte == b'1') && lines[cut].len() >= 40_000);
        lines.remove(cut);
        assert_eq!(lines, ["one", "three", "two"]);
    }
}

#[test]
fn lines_for_a_slow_reader_are_cut_at_a_line_end() {
    let (options, _) = with_disk(100_000, options(OutputMode::LineBuffer));
    let gate = Gate::default();
    let mut batch = Batch::behind(&gate, options);
    let line = [vec![b'x'; 9_999], b"\n".to_vec()].concat();
    let mut errors = 0;
    for job in 1..=2000 {
        batch.begin(job);
        batch.out(job, line.repeat(2));
        errors += usize::from(batch.end(job).error.is_some());
    }
    assert!(errors > 500, "{errors}");
    gate.open();
    let (out, _) = batch.close();
    assert!(out.ends_with(b"\n") && !out.windows(2).any(|two| two == b"\n\n"));
    for part in out.strip_suffix(b"\n").unwrap().split(|byte| *byte == b'\n') {
        assert!(part.len() <= 9_999 && part.iter().all(|byte| *byte == b'x'));
    }
}

#[test]
fn a_long_line_for_a_slow_reader_ends_where_it_is_cut() {
    for first in [0, 10, 70_000] {
        let (options, left) = with_disk(100_000 + first as i64, options(OutputMode::LineBuffer));
        let gate = Gate::default();
        let mut batch = Batch::behind(&gate, OutputOptions { memory_bytes: 0, ..options });
        batch.begin(1);
        batch.out(1, vec![b'1'; first]);
        batch.out(1, [vec![b'1'; 300_000], b"\n".to_vec()].concat());
        is_full(batch.end(1).error, Source::Stdout);
        left.store(1000, Ordering::Relaxed);
        assert!(batch.run(2, "two\n").error.is_none());
        gate.open();
        let (out, _) = batch.close_to_text();
        let (cut, rest) = out.split_once('\n').unwrap();
        assert!(cut.len() > 60_000 && cut.bytes().all(|byte| byte == b'1'), "{}", cut.len());
        assert_eq!(rest, "two\n");
    }
}
