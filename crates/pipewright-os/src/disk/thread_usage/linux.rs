//! `getrusage(RUSAGE_THREAD)`, `/proc/self/task`.

use std::fs;
use std::mem::MaybeUninit;

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
    // In blocks of 512 bytes, which is what disks are read and written in.
    let blocks = told.ru_inblock as u64 + told.ru_oublock as u64;
    Some(ThreadUsage { sleeps: told.ru_nvcsw as u64, disk_bytes: blocks * 512 })
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

pub(super) fn counts_disk_bytes() -> bool {
    // The kernel has the file where it has the counters (CONFIG_TASK_IO_ACCOUNTING).
    fs::metadata("/proc/thread-self/io").is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::{counts_disk_bytes, now};

    /// `read_bytes` and `write_bytes`: what went to and came from a disk, not what calls moved (proc_pid_io(5)).
    fn told_by_proc() -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
        let field = |name| text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        ["read_bytes: ", "write_bytes: "]
            .map(|name| field(name).parse::<u64>().unwrap())
            .iter()
            .sum()
    }

    #[test]
    fn the_bytes_of_disks_are_those_that_proc_tells() {
        if !counts_disk_bytes() {
            return eprintln!("SKIPPED: this kernel does not count them");
        }
        let before = (now().unwrap().disk_bytes, told_by_proc());
        assert_eq!(before.0, before.1);
        let path = std::env::temp_dir().join(format!("pipewright-usage-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        file.write_all_at(&[7; 64 << 10], 0).unwrap();
        file.sync_all().unwrap();
        std::fs::remove_file(&path).unwrap();
        // Nothing on a filesystem in memory; elsewhere what was written, and some more.
        assert_eq!(now().unwrap().disk_bytes, told_by_proc());
    }
}
