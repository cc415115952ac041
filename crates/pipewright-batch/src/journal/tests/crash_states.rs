//! Each state of the files that a kill or a power cut can leave: a runner's writes, truncations, flushes and names are
//! recorded, and every prefix of them is made again, with any part of what was not flushed. Each such log opens, and
//! knows what was durable. Damage that no crash leaves is refused.

use std::collections::BTreeMap;
use std::fs;

use super::*;
use crate::journal::tests::act::{self, say};

/// Jobs between two flushes, and the number of flushes of each run.
const JOBS_A_FLUSH: u64 = 40;
const FLUSHES: u64 = 5;

/// Creates a log and continues it: each run ends with a checkpoint that makes the file larger.
pub(super) fn write_runs(log: &Path) {
    let mut number = 0;
    for run in 0..2 {
        let mut journal = if run == 0 { create(log) } else { resume(log).0 };
        say(format_args!("begun {}", run + 1));
        for _ in 0..FLUSHES {
            for _ in 0..JOBS_A_FLUSH {
                number += 1;
                succeed(&mut journal, number);
            }
            journal.flush().unwrap();
            say(format_args!("durable {number}"));
        }
        journal.close(Some(0), "finished").unwrap();
    }
}

/// A recorded call.
#[derive(Debug, Clone)]
enum Op {
    Write {
        name: String,
        offset: Option<u64>,
        bytes: Vec<u8>,
    },
    Truncate {
        name: String,
        length: u64,
    },
    Sync {
        name: String,
    },
    Make {
        name: String,
    },
    Rename {
        from: String,
        to: String,
    },
    Remove {
        name: String,
    },
    /// Jobs up to this one are durable.
    Durable(u64),
}

/// Returns the bytes of a string of strace, in which every byte is `\xHH`.
fn unhex(text: &str) -> Vec<u8> {
    let digits = text.split("\\x").skip(1);
    digits.map(|two| u8::from_str_radix(&two[..2], 16).unwrap()).collect()
}

/// Returns the last part of a path, if it is one of the folder's.
fn file_name(bytes: &[u8], folder: &Path) -> Option<String> {
    let path = Path::new(std::str::from_utf8(bytes).ok()?);
    let name = path.strip_prefix(folder).ok()?.to_str()?.to_owned();
    // The index of a write-ahead log is in memory, and made again.
    (!name.ends_with("-shm") && !name.ends_with("-lock")).then_some(name)
}

/// Reads what strace has written.
fn parse(trace: &str, folder: &Path) -> Vec<Op> {
    let mut begun = BTreeMap::new();
    let mut ops = Vec::new();
    for line in trace.lines() {
        let (pid, call) = line.split_once(' ').unwrap();
        let call = call.trim_start();
        if let Some(start) = call.strip_suffix(" <unfinished ...>") {
            begun.insert(pid, start.to_owned());
            continue;
        }
        let call = match call.split_once(" resumed>") {
            Some((_, rest)) => format!("{}{rest}", begun.remove(pid).unwrap()),
            None => call.to_owned(),
        };
        let Some((call, result)) = call.rsplit_once(" = ") else { continue };
        if result.starts_with('-') {
            continue;
        }
        let (name, rest) = call.split_once('(').unwrap();
        let of_descriptor = || {
            let path = rest.split_once('<')?.1.split_once('>')?.0;
            let bytes = if path.contains("\\x") { unhex(path) } else { path.as_bytes().to_vec() };
            file_name(&bytes, folder)
        };
        let strings: Vec<_> = rest.split('"').skip(1).step_by(2).map(unhex).collect();
        let number = |text: &str| text.trim().trim_end_matches(')').parse::<u64>().unwrap();
        let last = || number(rest.rsplit(',').next().unwrap());
        match name {
            "write" if strings[0].starts_with(b"act: durable ") => {
                let text = String::from_utf8(strings[0].clone()).unwrap();
                ops.push(Op::Durable(text["act: durable ".len()..].trim().parse().unwrap()));
            }
            "write" | "pwrite64" => {
                let Some(file) = of_descriptor() else { continue };
                let offset = (name == "pwrite64").then(last);
                let bytes = strings[0].clone();
                assert_eq!(bytes.len() as u64, number(result), "{call}");
                ops.push(Op::Write { name: file, offset, bytes });
            }
            "ftruncate" => {
                let Some(name) = of_descriptor() else { continue };
                ops.push(Op::Truncate { name, length: last() });
            }
            "fsync" | "fdatasync" => {
                let path = of_descriptor();
                ops.extend(path.map(|name| Op::Sync { name }));
            }
            "openat" if rest.contains("O_CREAT") => {
                let made = file_name(&strings[0], folder);
                ops.extend(made.map(|name| Op::Make { name }));
            }
            "unlink" | "unlinkat" => {
                let gone = file_name(&strings[0], folder);
                ops.extend(gone.map(|name| Op::Remove { name }));
            }
            "rename" | "renameat" | "renameat2" | "link" | "linkat" => {
                let names = [0, 1].map(|at| file_name(&strings[at], folder));
                if let [Some(from), Some(to)] = names {
                    ops.push(Op::Rename { from, to });
                }
            }
            _ => {}
        }
    }
    ops
}

/// A file: what is on the disk, and what was written since.
#[derive(Debug, Clone, Default)]
struct Simulated {
    flushed: Vec<u8>,
    later: Vec<Op>,
}

impl Simulated {
    /// Returns the contents with those later calls that `keeps` chooses.
    fn contents(&self, mut keeps: impl FnMut() -> bool) -> Vec<u8> {
        let mut bytes = self.flushed.clone();
        for op in &self.later {
            if !keeps() {
                continue;
            }
            match op {
                Op::Write { offset, bytes: new, .. } => {
                    let at = offset.map_or(bytes.len(), |offset| offset as usize);
                    if bytes.len() < at + new.len() {
                        bytes.resize(at + new.len(), 0);
                    }
                    bytes[at..at + new.len()].copy_from_slice(new);
                }
                Op::Truncate { length, .. } => bytes.resize(*length as usize, 0),
                _ => {}
            }
        }
        bytes
    }
}

/// The files of the folder after some calls.
#[derive(Debug, Clone, Default)]
struct Disk(BTreeMap<String, Simulated>);

impl Disk {
    fn apply(&mut self, op: &Op) {
        match op {
            Op::Write { name, .. } | Op::Truncate { name, .. } => {
                self.0.get_mut(name).unwrap().later.push(op.clone());
            }
            Op::Sync { name } => {
                if let Some(file) = self.0.get_mut(name) {
                    *file = Simulated { flushed: file.contents(|| true), later: Vec::new() };
                }
            }
            Op::Make { name } => {
                self.0.entry(name.clone()).or_default();
            }
            Op::Rename { from, to } => {
                let file = self.0.remove(from).unwrap();
                self.0.insert(to.clone(), file);
            }
            Op::Remove { name } => {
                self.0.remove(name);
            }
            Op::Durable(_) => {}
        }
    }

    /// Writes the files as they are after a kill, or after a power cut that keeps what `keeps` chooses.
    fn write(&self, folder: &Path, mut keeps: impl FnMut() -> bool) {
        for (name, file) in &self.0 {
            fs::write(folder.join(name), file.contents(&mut keeps)).unwrap();
        }
        // As they were made.
        for entry in fs::read_dir(folder).unwrap() {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::Permissions::from_mode(0o600);
            fs::set_permissions(entry.unwrap().path(), mode).unwrap();
        }
    }
}

/// Records the calls of two runs. `None`: the machine has no strace.
fn record() -> Option<Vec<Op>> {
    let folder = Folder::new();
    let trace = tempfile::NamedTempFile::new().unwrap();
    let calls = "trace=openat,write,pwrite64,ftruncate,fsync,fdatasync,unlink,unlinkat,rename,renameat,\
                 renameat2,link,linkat";
    let output = trace.path().to_str().unwrap();
    let words = ["strace", "-f", "-qq", "-y", "-xx", "-s", "1000000", "-e", calls, "-o", output];
    installed(Command::new("strace").arg("-V"))?;
    let mut actor = act::start(&words, "runs", &folder.log());
    let mut last = None;
    while let Some(line) = actor.line() {
        last = Some(line);
    }
    if last.is_none() {
        skipped(Need::Program("strace"), "strace cannot trace here");
        return None;
    }
    assert_eq!(last, Some(format!("durable {}", 2 * FLUSHES * JOBS_A_FLUSH)));
    actor.child.wait().unwrap();
    let folder = folder.0.path().canonicalize().unwrap();
    Some(parse(&fs::read_to_string(trace.path()).unwrap(), &folder))
}

/// Returns a folder on a disk that flushes fast.
fn in_memory() -> Folder {
    tempfile::tempdir_in("/dev/shm").map_or_else(|_| Folder::new(), Folder)
}

/// Resumes the log of a state, and checks that it has what was durable.
fn check(folder: &Folder, durable: u64, what: &str) {
    let (journal, mut past) = Journal::resume(&folder.log(), &facts(), no_waker())
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    for number in 1..=durable {
        let found = past.look_up(JobId::new(&job(number), 0));
        let state = found.map(|past| past.state);
        assert_eq!(state, Some(JobState::SUCCEEDED), "{what}: job {number}");
    }
    journal.close(None, "finished").unwrap();
    assert!(
        Log::open(&folder.log()).unwrap().counts().unwrap().of(JobState::SUCCEEDED) >= durable,
        "{what}"
    );
}

#[test]
fn every_state_that_a_crash_can_leave_is_resumed() {
    let Some(ops) = record() else { return };
    let grows = |op: &&Op| matches!(op, Op::Write { name, .. } if name == "run.db");
    let moved = ops.iter().filter(grows).count();
    assert!(moved > 20, "{moved} pages were moved");
    let (mut disk, mut durable, mut random) = (Disk::default(), 0, 0x2545_f491_4f6c_dd1d_u64);
    let mut bits = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let (mut without_log, mut resumed) = (0, 0);
    for (at, op) in ops.iter().enumerate() {
        // A write that was cut short, as by a full disk. No disk, and no kernel, writes a part of a sector.
        let mut short = disk.clone();
        if let Op::Write { name, offset, bytes } = op {
            let bytes = bytes[..bytes.len() / 2 / 512 * 512].to_vec();
            short.apply(&Op::Write { name: name.clone(), offset: *offset, bytes });
        }
        disk.apply(op);
        if let Op::Durable(number) = op {
            durable = *number;
            continue;
        }
        if !disk.0.contains_key("run.db") {
            assert_eq!(durable, 0);
            without_log += 1;
            continue;
        }
        let parts = [bits(), bits()];
        for (state, what) in [(&short, "short write"), (&disk, "kill")] {
            let folder = in_memory();
            state.write(folder.0.path(), || true);
            if folder.log().exists() {
                check(&folder, durable, &format!("{what} at call {at}"));
            }
        }
        for (kept, what) in [(0, "nothing"), (parts[0], "a part"), (parts[1], "another part")] {
            let folder = in_memory();
            let mut kept = kept;
            disk.write(folder.0.path(), || {
                let keeps = kept & 1 == 1;
                kept = kept.rotate_right(1);
                keeps
            });
            check(&folder, durable, &format!("power cut at call {at} with {what} of the rest"));
            resumed += 1;
        }
    }
    assert!(without_log > 2 && resumed > 100, "{without_log}, {resumed}");
}

/// Returns a folder with a log as it is before the end of its first run, and the commits of its write-ahead log: for
/// each the number of its last frame.
fn unfinished(ops: &[Op]) -> (Folder, Vec<usize>) {
    let mut disk = Disk::default();
    let end =
        ops.iter().position(|op| matches!(op, Op::Durable(n) if *n == FLUSHES * JOBS_A_FLUSH));
    ops[..end.unwrap()].iter().for_each(|op| disk.apply(op));
    let folder = Folder::new();
    disk.write(folder.0.path(), || true);
    let wal = fs::read(folder.0.path().join("run.db-wal")).unwrap();
    let frames = wal[32..].chunks_exact(24 + 4096).enumerate();
    let commits = frames.filter(|(_, frame)| frame[4..8] != [0; 4]).map(|(at, _)| at).collect();
    (folder, commits)
}

#[test]
fn a_damaged_write_ahead_log_is_refused_and_does_not_begin_anew() {
    let Some(ops) = record() else { return };
    let (folder, commits) = unfinished(&ops);
    assert!(commits.len() >= FLUSHES as usize, "{commits:?}");
    let path = folder.0.path().join("run.db-wal");
    let whole = fs::read(&path).unwrap();
    let log = fs::read(folder.log()).unwrap();
    // The header, and each frame of all transactions but the last: the number of its page, its salt, its checksum, its
    // page.
    let before_last = commits[commits.len() - 2];
    let frames = (0..=before_last).map(|frame| 32 + frame * (24 + 4096));
    let places = frames.flat_map(|at| [at + 3, at + 9, at + 17, at + 24, at + 24 + 4000]);
    for place in [0, 5, 10, 17, 25].into_iter().chain(places) {
        let mut damaged = whole.clone();
        damaged[place] ^= 0x40;
        fs::write(&path, &damaged).unwrap();
        let error = Journal::resume(&folder.log(), &facts(), no_waker()).map(drop).err();
        let kind = error.as_ref().map(LogError::kind);
        assert_eq!(kind, Some(&LogErrorKind::Corrupt), "byte {place}: {error:?}, {commits:?}");
        assert!(fs::read(&path).unwrap() == damaged && fs::read(folder.log()).unwrap() == log);
    }
    // What is left of a transaction that was not flushed.
    let mut torn = whole.clone();
    let last = 32 + (before_last + 1) * (24 + 4096);
    torn[last + 100] ^= 1;
    fs::write(&path, &torn).unwrap();
    check(&folder, (FLUSHES - 1) * JOBS_A_FLUSH, "a torn last transaction");
}

#[test]
fn a_hard_link_of_a_log_is_the_same_log() {
    let folder = Folder::new();
    let other = folder.0.path().join("other.db");
    let mut journal = create(&folder.log());
    succeed(&mut journal, 1);
    journal.flush().unwrap();
    fs::hard_link(folder.log(), &other).unwrap();
    let kind = |path: &Path| {
        let error = Journal::resume(path, &facts(), no_waker()).map(drop).unwrap_err();
        error.kind().clone()
    };
    assert_eq!(kind(&other), LogErrorKind::OtherName);
    journal.close(None, "finished").unwrap();
    // A backup of a log that has ended is no obstacle, nor is the log for its backup.
    resume(&folder.log()).0.close(None, "finished").unwrap();
    let (journal, past) = resume(&other);
    assert_eq!(past.len(), 1);
    assert_eq!(kind(&folder.log()), LogErrorKind::OtherName);
    journal.close(None, "finished").unwrap();
    resume(&folder.log()).0.close(None, "finished").unwrap();
}

#[test]
fn a_link_to_a_log_has_its_lock_and_its_write_ahead_log() {
    let folder = Folder::new();
    let other = Folder::new();
    let mut runner = act::start(&[], "keep", &folder.log());
    assert_eq!(runner.line().as_deref(), Some("ready"));
    std::os::unix::fs::symlink(folder.log(), other.log()).unwrap();
    let error = Journal::resume(&other.log(), &facts(), no_waker()).unwrap_err();
    assert!(matches!(error.kind(), LogErrorKind::InUse { .. }), "{error}");
    runner.kill();
    resume(&other.log()).0.close(None, "finished").unwrap();
    assert_eq!(fs::read_dir(other.0.path()).unwrap().count(), 1);
}
