//! The process that the kernel killed for lack of memory, from the kernel's log.
//!
//! The log can be read by root, and by others if `kernel.dmesg_restrict` is 0. The kernel leaves lines out if many
//! processes are killed in a short time. So the victim may stay unknown.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::process::limits::Victim;

/// A kill, as the kernel's log has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LoggedKill {
    pub(super) victim: Victim,
    /// True if the machine had no memory left; false if a limit was reached.
    pub(super) is_of_machine: bool,
}

/// Returns the last kill in the group with that name, which is unique.
pub(super) fn kill_in(group: &str) -> Option<LoggedKill> {
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
