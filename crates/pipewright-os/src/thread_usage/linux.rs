//! `getrusage(RUSAGE_THREAD)`, `/proc/thread-self/io`, `/proc/self/task`.

use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt as _;

use super::ThreadUsage;

pub(super) fn now() -> Option<ThreadUsage> {
    let mut told = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the thread that calls, and room for the struct.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, told.as_mut_ptr()) };
    if result != 0 {
        return None;
    }
    // SAFETY: filled in by the call, which succeeded.
    let told = unsafe { told.assume_init() };
    Some(ThreadUsage { sleeps: told.ru_nvcsw as u64 })
}

pub(super) fn kernel_workers() -> Option<usize> {
    // The kernel cuts names at 15 bytes.
    let mut name = format!("iou-wrk-{}", rustix::thread::gettid().as_raw_nonzero());
    name.truncate(15);
    let tasks = fs::read_dir("/proc/self/task").ok()?.flatten();
    let is_worker = |task: &fs::DirEntry| {
        // One that has ended meanwhile is none.
        fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    };
    Some(tasks.filter(is_worker).count())
}

#[derive(Debug)]
pub(super) struct DiskCounter(fs::File);

impl DiskCounter {
    pub(super) fn open() -> Option<DiskCounter> {
        let counter = DiskCounter(fs::File::open("/proc/thread-self/io").ok()?);
        counter.bytes().map(|_| counter)
    }

    pub(super) fn bytes(&self) -> Option<u64> {
        let mut text = [0; 256];
        let length = self.0.read_at(&mut text, 0).ok()?;
        sum(std::str::from_utf8(text.get(..length)?).ok()?)
    }
}

/// proc_pid_io(5): what went to and came from a disk, not what calls moved.
fn sum(text: &str) -> Option<u64> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name))?.parse().ok();
    let (read, written): (u64, u64) = (field("read_bytes: ")?, field("write_bytes: ")?);
    Some(read + written)
}

#[cfg(test)]
mod tests {
    use super::sum;

    #[test]
    fn bytes_of_disks_are_told_from_those_of_calls() {
        let text = "rchar: 9\nwchar: 8\nsyscr: 7\nsyscw: 6\nread_bytes: 4096\nwrite_bytes: 512\n\
                    cancelled_write_bytes: 1\n";
        assert_eq!(sum(text), Some(4608));
        assert_eq!(sum("rchar: 9\n"), None);
    }
}
