//! The kernel's own record of io_uring: its tracepoint for operations that it hands to a thread.

use std::fs;
use std::path::{Path, PathBuf};

use crate::mounts::{Mounted, mount};
use crate::skip::{Lack, Need};

/// A private trace instance, until it is dropped.
#[derive(Debug)]
pub struct Oracle {
    instance: PathBuf,
    _tracefs: Mounted,
}

const EVENT: &str = "events/io_uring/io_uring_queue_async_work/enable";

impl Oracle {
    /// Starts the trace. Call [`private`](crate::mounts::private) first. `Err` is what the machine lacks.
    pub fn new(folder: &Path) -> Result<Oracle, Lack> {
        const NEED: Need<'static> = Need::Filesystem("tracefs");
        let tracefs = mount(folder, "trace", &["-t", "tracefs", "none"]);
        let tracefs = tracefs.map_err(|lack| lack.of(NEED))?;
        let name = format!("pipewright-test-{}", std::process::id());
        let instance = tracefs.path().join("instances").join(name);
        let message = |error: std::io::Error| Lack::new(NEED, error);
        fs::create_dir(&instance).map_err(message)?;
        let oracle = Oracle { instance, _tracefs: tracefs };
        oracle.write("buffer_size_kb", "2048").map_err(message)?;
        oracle.write(EVENT, "1").map_err(message)?;
        Ok(oracle)
    }

    fn write(&self, file: &str, text: &str) -> std::io::Result<()> {
        fs::write(self.instance.join(file), text)
    }

    /// Returns the `user_data` of each operation of this thread that the kernel has handed to one of its
    /// threads since the last call, in order.
    pub fn handed_over(&self) -> Vec<u64> {
        let trace = fs::read(self.instance.join("trace")).expect("the trace can be read");
        self.write("trace", "").expect("the trace can be emptied");
        let trace = String::from_utf8_lossy(&trace);
        let own = format!("-{} ", rustix::thread::gettid().as_raw_nonzero());
        // "name-TID  [cpu] flags time: io_uring_queue_async_work: ring ..., user_data 0x1f, opcode ..."
        let mine = trace
            .lines()
            .filter(|line| line.split_once('[').is_some_and(|(task, _)| task.contains(&own)));
        mine.filter_map(|line| {
            let data = line.split_once("user_data 0x")?.1.split(',').next()?;
            u64::from_str_radix(data, 16).ok()
        })
        .collect()
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // Removed before the unmount: instances belong to the machine, not to the mount.
        let _ = self.write(EVENT, "0");
        let _ = fs::remove_dir(&self.instance);
    }
}
