//! The figures of the groups of a tree, the victim of the kernel, and a limit on memory that is held without it.

use std::ffi::CString;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::Controller;
use super::files::{self, OpenFiles};
use super::groups::{self, Kills, V1Group, V1Groups};
use super::place::{Ancestor, LimitedPlace};
use crate::base::generation::Generation;
use crate::base::service_thread;
use crate::base::wait::{self, Slot};
use crate::base::wake::Wake;
use crate::process::contain::linux::TreeMeter;
use crate::process::contain::linux::cgroup::Cgroup;
use crate::process::contain::linux::report::Reports;
use crate::process::limits::{HeldLimits, MemoryLimit, OutOfMemory, TreeResources, Victim};
use crate::process::member::Member;
use crate::process::procfs::{self, children_of};
use crate::process::tree::is_child_of;
use crate::process::usage::TreeUsage;

/// The groups of a tree, and the counts of the groups around it at its start.
#[derive(Debug)]
pub(crate) struct Meter {
    held: HeldLimits,
    groups: V1Groups,
    /// The place of the cgroup, and the counts of its ancestors that limit the memory.
    around: Option<(Arc<LimitedPlace>, Vec<u64>)>,
    /// Looks at the memory of the tree, if nothing else limits it.
    sampler: Option<Sampler>,
    /// The files that stay open; `None` if the groups are for one tree only.
    open: Option<OpenFiles>,
}

/// The figures of the groups at one time.
#[derive(Debug, Clone, Default)]
pub(super) struct Figures {
    pub(super) usage: TreeUsage,
    pub(super) killed: Option<Killed>,
    pub(super) refused_starts: u64,
}

/// The kills for lack of memory.
#[derive(Debug, Clone)]
pub(super) struct Killed {
    kills: Kills,
    peak_bytes: Option<u64>,
    /// The name of the group, by which the kernel's log names the victim.
    group: String,
}

/// The file of the largest amount of memory that a group of version 1 has used.
pub(super) const V1_PEAK: &str = "memory.max_usage_in_bytes";

impl Meter {
    pub(super) fn new(
        held: HeldLimits,
        groups: V1Groups,
        place: Option<Arc<LimitedPlace>>,
        sampler: Option<Sampler>,
    ) -> Meter {
        let around = place.map(|place| {
            let counts = place.ancestors.iter().map(Ancestor::ooms).collect();
            (place, counts)
        });
        Meter { held, groups, around, sampler, open: None }
    }

    /// Returns the name of the mechanism that holds the limits.
    pub(super) fn mechanism(&self) -> String {
        self.held.mechanism.map(|it| it.to_string()).unwrap_or_default()
    }

    /// Keeps files open that have been read.
    pub(super) fn keep_open(&mut self) {
        self.open = Some(OpenFiles::default());
    }

    /// Reads a file of a group; an empty text if there is none.
    fn read(&self, dir: BorrowedFd<'_>, file: &'static str) -> String {
        let read = match &self.open {
            Some(open) => open.with(dir, file, files::read_open),
            None => files::read(dir, file),
        };
        read.unwrap_or_default()
    }

    /// Returns the number in a file of a group.
    pub(super) fn number(&self, dir: BorrowedFd<'_>, file: &'static str) -> Option<u64> {
        files::number_of(&self.read(dir, file))
    }

    /// Writes to a file of a group.
    pub(super) fn write(
        &self,
        dir: BorrowedFd<'_>,
        file: &'static str,
        text: &str,
    ) -> io::Result<()> {
        match &self.open {
            Some(open) => open.with(dir, file, |file| {
                Ok(rustix::io::pwrite(file, text.as_bytes(), 0).map(drop)?)
            }),
            None => files::write(dir, file, text),
        }
    }

    /// Reads all settings of the groups that a tree could have changed, and that the next tree would see.
    pub(super) fn settings(&self, cgroup: Option<&Cgroup>) -> Vec<String> {
        let of_cgroup = cgroup
            .into_iter()
            .flat_map(|cgroup| groups::SETTINGS.iter().map(move |file| (cgroup.dir(), *file)));
        let of_groups = self.groups.iter().flat_map(|group| {
            group.controllers.iter().flat_map(move |controller| {
                groups::v1_settings_of(controller).iter().map(move |file| (group.dir(), *file))
            })
        });
        of_cgroup.chain(of_groups).map(|(dir, file)| self.read(dir, file)).collect()
    }

    pub(super) fn groups(&self) -> &V1Groups {
        &self.groups
    }

    /// Returns true if nothing but looks at the memory limits it.
    pub(super) fn is_sampled(&self) -> bool {
        self.sampler.is_some()
    }

    /// Returns true if no group around them was out of memory since they were made: that would be taken for the reason
    /// of a later kill.
    pub(super) fn ancestors_had_memory(&self) -> bool {
        self.around.iter().all(|(place, counts)| {
            place.ancestors.iter().zip(counts).all(|(ancestor, before)| ancestor.ooms() == *before)
        })
    }

    fn kills(&self, cgroup: Option<&Cgroup>) -> Option<Killed> {
        let limit = self.held.limits.memory_max_bytes;
        if let Some(group) = self.groups.of(Controller::Memory) {
            let control = self.read(group.dir(), "memory.oom_control");
            let kills = groups::kills_in_v1(group, &control, limit)?;
            let peak_bytes = self.number(group.dir(), V1_PEAK);
            return Some(Killed { kills, peak_bytes, group: group.name() });
        }
        let cgroup = cgroup?;
        let ancestors: Vec<_> = match &self.around {
            Some((place, counts)) => place.ancestors.iter().zip(counts.iter().copied()).collect(),
            None => Vec::new(),
        };
        let events = self.read(cgroup.dir(), "memory.events");
        let kills = groups::kills_in_v2(cgroup, &events, limit, &ancestors)?;
        let peak_bytes = self.number(cgroup.dir(), "memory.peak");
        Some(Killed { kills, peak_bytes, group: cgroup.name().to_string_lossy().into_owned() })
    }

    fn usage(&self, cgroup: Option<&Cgroup>) -> TreeUsage {
        let mut usage = TreeUsage::default();
        if let Some(cgroup) = cgroup {
            let read = |file| self.read(cgroup.dir(), file);
            let stat = read("cpu.stat");
            let micros = |key| files::value(&stat, key).map(Duration::from_micros);
            usage.user = micros("user_usec");
            usage.system = micros("system_usec");
            usage.memory_stall = files::stalled(&read("memory.pressure"));
            usage.cpu_stall = files::stalled(&read("cpu.pressure"));
            usage.io_stall = files::stalled(&read("io.pressure"));
        }
        if let Some(group) = self.groups.of(Controller::Memory) {
            usage.peak_memory_bytes = self.number(group.dir(), V1_PEAK);
        } else if let Some(cgroup) = cgroup {
            usage.peak_memory_bytes = self.number(cgroup.dir(), "memory.peak");
        }
        if let Some(peak) = self.sampler.as_ref().and_then(Sampler::peak_bytes) {
            usage.peak_memory_bytes = Some(peak);
        }
        if let Some(group) = self.groups.of(Controller::Pids) {
            usage.peak_pids = self.number(group.dir(), "pids.peak");
        } else if let Some(cgroup) = cgroup {
            usage.peak_pids = self.number(cgroup.dir(), "pids.peak");
        }
        usage
    }

    /// Returns how many starts of processes and threads the limit on their number has refused.
    fn refused_starts(&self, cgroup: Option<&Cgroup>) -> u64 {
        if self.held.limits.pids_max.is_none() {
            return 0;
        }
        let dir = self.groups.of(Controller::Pids).map(V1Group::dir).or(cgroup.map(Cgroup::dir));
        dir.and_then(|dir| files::value(&self.read(dir, "pids.events"), "max")).unwrap_or(0)
    }

    /// Reads the figures of the groups.
    pub(super) fn figures(&self, cgroup: Option<&Cgroup>) -> Figures {
        Figures {
            usage: self.usage(cgroup),
            killed: self.kills(cgroup),
            refused_starts: self.refused_starts(cgroup),
        }
    }

    /// Returns the resources that figures stand for.
    pub(super) fn explain(&self, figures: Figures) -> TreeResources {
        let Figures { usage, killed, refused_starts } = figures;
        let out_of_memory = killed.map(|Killed { kills, peak_bytes, group }| {
            let killed = u32::try_from(kills.count).unwrap_or(u32::MAX);
            let logged = kill_in(&group);
            let limit = match (kills.limit, logged) {
                // The limit is outside of the groups that can be seen from here.
                (MemoryLimit::Machine, Some(LoggedKill { is_of_machine: false, .. })) => {
                    MemoryLimit::OfAncestor(None)
                }
                (limit, _) => limit,
            };
            let victim = logged.map(|logged| logged.victim);
            OutOfMemory { limit, peak_bytes, victim, killed, peak_pids: usage.peak_pids }
        });
        let sampled = self.sampler.as_ref().and_then(Sampler::out_of_memory);
        let out_of_memory = out_of_memory.or(sampled);
        TreeResources { held: self.held.clone(), usage, out_of_memory, refused_starts }
    }
}

impl Figures {
    /// Returns the figures without those at an earlier time. The peaks are kept.
    pub(super) fn since(mut self, before: &Figures) -> Figures {
        let TreeUsage { user, system, memory_stall, cpu_stall, io_stall, .. } = &mut self.usage;
        let usage = &before.usage;
        for (time, before) in [
            (user, usage.user),
            (system, usage.system),
            (memory_stall, usage.memory_stall),
            (cpu_stall, usage.cpu_stall),
            (io_stall, usage.io_stall),
        ] {
            *time = time.map(|time| time.saturating_sub(before.unwrap_or_default()));
        }
        self.refused_starts = self.refused_starts.saturating_sub(before.refused_starts);
        self
    }
}

impl TreeMeter for Meter {
    fn begin(&self, tree: SampledTree) {
        if let Some(sampler) = &self.sampler {
            sampler.begin(tree);
        }
    }

    fn group_paths(&self) -> Vec<CString> {
        self.groups.paths()
    }

    fn resources(&self, cgroup: Option<&Cgroup>) -> TreeResources {
        self.explain(self.figures(cgroup))
    }
}

/// The time between two looks.
const INTERVAL: Duration = Duration::from_millis(50);

/// The processes of a tree, without a share in their lives.
pub(crate) struct SampledTree {
    pub(crate) cgroup: Option<Weak<Cgroup>>,
    /// The reports of the supervisor, its number, and its parent.
    pub(crate) supervisor: Option<(Weak<Reports>, u32, Member)>,
}

/// The thread that looks at the memory of a tree, and kills the tree if it is too much.
///
/// Between two looks the tree can use any amount of memory. So this is only done if a limit may be left out.
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
        // A child of the guard keeps its number until the guard has reaped it. Checked afterwards: then the list is its
        // own.
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

/// Returns the memory of each process. Memory that several share counts once only if it matters: that figure costs
/// more.
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

/// A kill, as the kernel's log has it.
///
/// The log can be read by root, and by others if `kernel.dmesg_restrict` is 0. The kernel leaves lines out if many
/// processes are killed in a short time. So the victim may stay unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LoggedKill {
    pub(super) victim: Victim,
    /// True if the machine had no memory left; false if a limit was reached.
    is_of_machine: bool,
}

/// Returns the last kill in the group with that name, which is unique.
fn kill_in(group: &str) -> Option<LoggedKill> {
    const RECORD_BYTES: usize = 8 << 10;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let log = rustix::fs::open("/dev/kmsg", flags, Mode::empty()).ok()?;
    let mut record = [0; RECORD_BYTES];
    let mut kill = None;
    loop {
        match rustix::io::read(&log, &mut record) {
            Ok(0) => return kill,
            Ok(count) => {
                let text = String::from_utf8_lossy(record.get(..count).unwrap_or_default());
                kill = in_record(&text, group).or(kill);
            }
            // The record was overwritten; the next read continues with the oldest one.
            Err(Errno::PIPE | Errno::INTR) => {}
            Err(_) => return kill,
        }
    }
}

/// Returns the kill that a record is about, if that was in the group.
fn in_record(record: &str, group: &str) -> Option<LoggedKill> {
    let (_, facts) = record.lines().next()?.split_once(";oom-kill:")?;
    let (cause, after) = facts.split_once(",task_memcg=")?;
    // The name of a process may contain anything; its number follows it.
    let (path, task) = after.split_once(",task=")?;
    path.split('/').find(|part| *part == group)?;
    let (name, numbers) = task.rsplit_once(",pid=")?;
    let pid = numbers.split(',').next()?.parse().ok()?;
    let is_of_machine = !cause.contains(",oom_memcg=");
    Some(LoggedKill { victim: Victim::new(pid, name), is_of_machine })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_victim_of_the_group_is_found() {
        let record = "6,1057,5071442,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,\
            mems_allowed=0,oom_memcg=/a/pipewright-7-l0-f,task_memcg=/a/pipewright-7-l0-f/x,task=cc1 ,plus,\
            pid=4711,uid=1000\n SUBSYSTEM=memory\n";
        let LoggedKill { victim, is_of_machine } = in_record(record, "pipewright-7-l0-f").unwrap();
        assert_eq!((victim.pid(), victim.name()), (4711, "cc1 ,plus"));
        assert!(!is_of_machine);
        let machine = record.replace("oom_memcg=/a/pipewright-7-l0-f", "global_oom");
        assert!(in_record(&machine, "pipewright-7-l0-f").unwrap().is_of_machine);
        assert_eq!(in_record(record, "pipewright-7-l0"), None);
        assert_eq!(in_record(record, "pipewright-7-l0-f2"), None);
        assert_eq!(in_record("6,1,2,-;something else", "a"), None);
        assert_eq!(in_record("", "a"), None);
    }
}
