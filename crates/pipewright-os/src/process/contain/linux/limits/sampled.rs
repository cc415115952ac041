//! A limit on memory without the kernel: a thread looks at the memory of the tree, and kills the tree if it is too much.
//!
//! Between two looks the tree can use any amount of memory. So this is only done if a limit may be left out.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::base::generation::Generation;
use crate::base::service_thread;
use crate::base::wait::{self, Slot};
use crate::base::wake::Wake;
use crate::process::contain::linux::cgroup::Cgroup;
use crate::process::contain::linux::report::Reports;
use crate::process::limits::{MemoryLimit, OutOfMemory};
use crate::process::member::Member;
use crate::process::procfs::{self, children_of};
use crate::process::tree::is_child_of;

/// The time between two looks.
const INTERVAL: Duration = Duration::from_millis(50);

/// The processes of a tree, without a share in their lives.
pub(crate) struct SampledTree {
    pub(crate) cgroup: Option<Weak<Cgroup>>,
    /// The reports of the supervisor, its number, and its parent.
    pub(crate) supervisor: Option<(Weak<Reports>, u32, Member)>,
}

/// The thread that looks at a tree.
///
/// # Drop
/// Ends it.
#[derive(Debug)]
pub(super) struct Sampler {
    limit_bytes: u64,
    stop: Arc<Wake>,
    /// The process whose thread it is.
    made_in: Generation,
    seen: Arc<Mutex<Seen>>,
}

/// The findings of the looks so far.
#[derive(Debug, Default)]
struct Seen {
    peak_bytes: u64,
    /// The number of processes that were killed because the limit was exceeded.
    killed: Option<u32>,
}

impl Sampler {
    pub(super) fn new(limit_bytes: u64) -> io::Result<Sampler> {
        Ok(Sampler {
            limit_bytes,
            stop: Arc::new(Wake::new()?),
            made_in: Generation::current(),
            seen: Arc::default(),
        })
    }

    /// Begins to look at a tree.
    pub(super) fn begin(&self, tree: SampledTree) {
        let (stop, seen, limit) =
            (Arc::clone(&self.stop), Arc::clone(&self.seen), self.limit_bytes);
        let watch = move || {
            while !stop.is_raised() {
                let pids = match tree.pids() {
                    Some(Ok(pids)) => pids,
                    // There is no room to look now.
                    Some(Err(_)) => {
                        pause(&stop);
                        continue;
                    }
                    None => return,
                };
                let memory = memory_bytes(&pids, limit);
                let mut bytes: u64 = memory.iter().map(|(_, bytes)| bytes).sum();
                if bytes > limit {
                    // A number may have passed to another process before its memory was read. One that still belongs to
                    // the tree had not.
                    let Some(Ok(still)) = tree.pids() else { continue };
                    let them = memory.iter().filter(|(pid, _)| still.contains(pid));
                    bytes = them.map(|(_, bytes)| bytes).sum();
                }
                let mut seen = lock(&seen);
                seen.peak_bytes = seen.peak_bytes.max(bytes);
                if bytes > limit {
                    seen.killed = u32::try_from(pids.len()).ok();
                    tree.kill();
                    return;
                }
                drop(seen);
                pause(&stop);
            }
        };
        // Ignored: no thread can be started, and the tree runs without a limit, as was allowed.
        let _ = service_thread::start(c"pipewright-limit", watch);
    }

    pub(super) fn peak_bytes(&self) -> Option<u64> {
        Some(lock(&self.seen).peak_bytes).filter(|peak| *peak > 0)
    }

    /// Returns the kill of the tree, if it used too much.
    pub(super) fn out_of_memory(&self) -> Option<OutOfMemory> {
        let seen = lock(&self.seen);
        Some(OutOfMemory {
            limit: MemoryLimit::OfCommand(self.limit_bytes),
            peak_bytes: Some(seen.peak_bytes),
            victim: None,
            killed: seen.killed?,
            peak_pids: None,
        })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // A fork has a copy of the flag of the thread.
        if self.made_in.is_current() {
            self.stop.raise();
        }
    }
}

/// Waits for the next look, or for the end of looking.
fn pause(stop: &Wake) {
    // Ignored: the next look comes at once.
    let _ = wait::any(&mut [Slot::Event(stop)], Some(Instant::now() + INTERVAL));
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    // Each field is one assignment.
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SampledTree {
    /// Returns the numbers of the processes; `None` if the tree is gone.
    fn pids(&self) -> Option<io::Result<Vec<u32>>> {
        if let Some(cgroup) = &self.cgroup {
            return Some(cgroup.upgrade()?.pids());
        }
        let (reports, supervisor, guard) = self.supervisor.as_ref()?;
        reports.upgrade()?;
        let pids = descendants_of(*supervisor).map_err(io::Error::from);
        // A child of the guard keeps its number until the guard has reaped it. Checked afterwards: then the list is its own.
        match is_child_of(*supervisor, guard) {
            Ok(true) => Some(pids),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    fn kill(&self) {
        if let Some(cgroup) = self.cgroup.as_ref().and_then(Weak::upgrade) {
            cgroup.kill();
        }
        if let Some(reports) = self.supervisor.as_ref().and_then(|(reports, ..)| reports.upgrade())
        {
            reports.request_end();
        }
    }
}

fn descendants_of(pid: u32) -> rustix::io::Result<Vec<u32>> {
    let mut pids = children_of(pid)?;
    let mut next = 0;
    while let Some(pid) = pids.get(next) {
        pids.extend(children_of(*pid)?);
        next += 1;
    }
    Ok(pids)
}

/// Returns the memory of each process. Memory that several share counts once only if it matters: that figure costs more.
fn memory_bytes(pids: &[u32], limit: u64) -> Vec<(u32, u64)> {
    let kib = |pid: u32, file: &str, name: &[u8]| {
        let text = procfs::read(&format!("/proc/{pid}/{file}")).ok()?;
        let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
        procfs::number(procfs::words(line).next()?).map(u64::from)
    };
    let resident = |pid: u32| kib(pid, "status", b"VmRSS:").unwrap_or(0);
    let of_each = |kib: &dyn Fn(u32) -> u64| -> Vec<(u32, u64)> {
        pids.iter().map(|pid| (*pid, kib(*pid) * 1024)).collect()
    };
    let memory = of_each(&resident);
    if memory.iter().map(|(_, bytes)| bytes).sum::<u64>() <= limit {
        return memory;
    }
    of_each(&|pid| kib(pid, "smaps_rollup", b"Pss:").unwrap_or_else(|| resident(pid)))
}
