//! An end for lack of memory: the limit, the peak and the victim.

use std::fmt;

use crate::base::error::Quoted;

/// The reason why the kernel killed a process of a tree for lack of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// The limit that was reached.
    pub limit: MemoryLimit,
    /// The largest amount of memory that the tree used at one time, in bytes, if it is known.
    pub peak_bytes: Option<u64>,
    /// The killed process, if it is known; the last one if there were several.
    pub victim: Option<Victim>,
    /// The number of killed processes.
    pub killed: u32,
    /// The largest number of processes and threads in the tree at one time, if it is known.
    pub peak_pids: Option<u64>,
}

/// The limit that was reached when a process was killed for lack of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryLimit {
    /// The limit of the command, in bytes.
    OfCommand(u64),
    /// The limit of a group that the command's process tree is in, such as a container, and its bytes if they are
    /// known.
    OfAncestor(Option<u64>),
    /// A limit that the command set for a part of its own tree.
    OfDescendant,
    /// The memory of the whole machine, or a limit that cannot be seen from here.
    Machine,
}

/// A process that the kernel killed for lack of memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Victim {
    pid: u32,
    /// The name, as the kernel keeps it: 15 bytes and a NUL.
    name: [u8; Victim::NAME_BYTES],
}

impl Victim {
    /// The number of bytes that the kernel keeps of a name (`TASK_COMM_LEN`), the NUL included.
    const NAME_BYTES: usize = 16;

    /// Creates a victim. The name is cut as the kernel cuts it.
    #[must_use]
    pub fn new(pid: u32, name: &str) -> Victim {
        let mut end = name.len().min(Victim::NAME_BYTES - 1);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        let mut bytes = [0; Victim::NAME_BYTES];
        for (place, byte) in bytes.iter_mut().zip(name.as_bytes().iter().take(end)) {
            *place = *byte;
        }
        Victim { pid, name: bytes }
    }

    /// Returns its process id, as the kernel's log has it: in the first pid namespace.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns its name, at most 15 bytes of it.
    #[must_use]
    pub fn name(&self) -> &str {
        let end = self.name.iter().position(|byte| *byte == 0).unwrap_or(self.name.len());
        std::str::from_utf8(self.name.get(..end).unwrap_or_default()).unwrap_or_default()
    }
}

impl fmt::Debug for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Victim").field("pid", &self.pid).field("name", &self.name()).finish()
    }
}

/// A number of bytes in the unit that people use: `2 GiB`, `1.5 MiB`.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 4] =
            [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        match UNITS.iter().find(|(_, unit)| self.0 >= *unit) {
            Some((name, unit)) if self.0 % unit == 0 => write!(f, "{} {name}", self.0 / unit),
            #[expect(clippy::cast_precision_loss, reason = "a figure for people, with one decimal")]
            Some((name, unit)) => write!(f, "{:.1} {name}", self.0 as f64 / *unit as f64),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryLimit::OfCommand(bytes) => write!(f, "its memory limit of {}", Bytes(*bytes)),
            MemoryLimit::OfAncestor(Some(bytes)) => {
                write!(f, "the memory limit of {} of the group around it", Bytes(*bytes))
            }
            MemoryLimit::OfAncestor(None) => f.write_str("the memory limit of the group around it"),
            MemoryLimit::OfDescendant => f.write_str("a memory limit that it set itself"),
            MemoryLimit::Machine => f.write_str("the memory of this machine"),
        }
    }
}

impl fmt::Display for OutOfMemory {
    /// Writes the victim and the reason: `"cc1plus" was killed: over its memory limit of 2 GiB (peak 2.0 GiB, tree of
    /// 14)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.victim {
            Some(victim) => write!(f, "{}", Quoted(victim.name().as_ref()))?,
            None if self.killed > 1 => f.write_str("processes")?,
            None => f.write_str("a process")?,
        }
        let was = if self.victim.is_none() && self.killed > 1 { "were" } else { "was" };
        write!(f, " {was} killed: over {}", self.limit)?;
        match (self.peak_bytes, self.peak_pids) {
            (Some(peak), Some(pids)) => write!(f, " (peak {}, tree of {pids})", Bytes(peak)),
            (Some(peak), None) => write!(f, " (peak {})", Bytes(peak)),
            (None, Some(pids)) => write!(f, " (tree of {pids})"),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_cut_as_the_kernel_cuts_it() {
        assert_eq!(Victim::new(7, "cc1plus").name(), "cc1plus");
        assert_eq!(Victim::new(7, "a-very-long-name-of-a-program").name(), "a-very-long-nam");
        assert_eq!(Victim::new(7, "123456789012345é").name(), "123456789012345");
        assert_eq!(Victim::new(7, "12345678901234é").name(), "12345678901234");
        assert_eq!(Victim::new(7, "").name(), "");
    }

    #[test]
    fn bytes_print_in_the_unit_that_people_use() {
        let shown = |bytes| Bytes(bytes).to_string();
        assert_eq!(shown(2 << 30), "2 GiB");
        assert_eq!(shown(3 << 19), "1.5 MiB");
        assert_eq!(shown(1000), "1000 bytes");
        let oom = OutOfMemory {
            limit: MemoryLimit::OfCommand(2 << 30),
            peak_bytes: Some((2 << 30) - 4096),
            victim: None,
            killed: 1,
            peak_pids: Some(14),
        };
        let reason = "over its memory limit of 2 GiB (peak 2.0 GiB, tree of 14)";
        assert_eq!(oom.to_string(), format!("a process was killed: {reason}"));
        let victim = Some(Victim::new(7, "cc1plus"));
        let named = OutOfMemory { victim, ..oom };
        assert_eq!(named.to_string(), format!("\"cc1plus\" was killed: {reason}"));
    }
}
