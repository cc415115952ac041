//! Removes the control groups of the tree, and those that the tree has made in them.

use core::mem::MaybeUninit;

use crate::nolibc::call;
use crate::nolibc::number;
use crate::system::{self, Arguments, CGROUP_PARENT};

/// The name of the cgroup among the arguments, and the first of the three paths.
const CGROUP: usize = 3;
const FIRST_PATH: usize = 4;
const PATHS: usize = 3;
/// The argument that is empty unless the host reads figures of the groups.
const FIGURES: usize = FIRST_PATH + PATHS;

/// The first pause between two attempts. A killed process may still be ending in a group. Each pause is a quarter
/// longer than the one before.
const FIRST_PAUSE_NANOS: i64 = 2_500_000;
/// The longest pause while the host waits for this process: a tenth of a second in all.
const LAST_PAUSE_OF_HOST_NANOS: i64 = 20_000_000;
/// The longest pause once nobody waits: ten seconds in all, for a machine with too much to do.
const LAST_PAUSE_NANOS: i64 = 2_000_000_000;
/// The most groups in each other. A command that makes more keeps them.
const MAX_DEPTH: u32 = 8;

const AT_FDCWD: i32 = -100;
const ENOENT: isize = -2;

/// Removes the groups. Waits for the end of their processes: a tenth of a second if the host runs, ten seconds
/// otherwise.
pub fn remove(arguments: &Arguments) {
    let mut pause = FIRST_PAUSE_NANOS;
    while !remove_all(arguments) {
        let nobody_waits = system::host_process_has_ended();
        if pause > if nobody_waits { LAST_PAUSE_NANOS } else { LAST_PAUSE_OF_HOST_NANOS } {
            return;
        }
        system::pause(pause);
        pause += pause / 4;
    }
}

/// Returns true if the host reads figures of the groups after the end of the tree, and closes its end of the socket
/// then. It sees the end by the cgroup.
pub fn are_read(arguments: &Arguments) -> bool {
    !is_empty(arguments.text(FIGURES)) && !is_empty(arguments.text(CGROUP))
}

/// Removes the groups of a tree that has ended by itself, if they are empty and the host reads no figures of them. The
/// host removes the others.
pub fn remove_unless_read(arguments: &Arguments) {
    if is_empty(arguments.text(FIGURES)) {
        remove_all(arguments);
    }
}

fn remove_all(arguments: &Arguments) -> bool {
    let mut is_done = is_empty(arguments.text(CGROUP))
        || remove_group(CGROUP_PARENT, arguments.text(CGROUP), MAX_DEPTH);
    let mut index = FIRST_PATH;
    while index < FIRST_PATH + PATHS {
        let path = arguments.text(index);
        is_done &= is_empty(path) || remove_group(AT_FDCWD, path, MAX_DEPTH);
        index += 1;
    }
    is_done
}

fn is_empty(text: *const u8) -> bool {
    // SAFETY: a string has at least its NUL.
    unsafe { *text == 0 }
}

/// Removes one group, after those in it. Returns false if one is still there.
fn remove_group(parent: i32, name: *const u8, depth: u32) -> bool {
    const AT_REMOVEDIR: usize = 0x200;
    let remove = || {
        let result =
            call(number::UNLINKAT, [parent as usize, name as usize, AT_REMOVEDIR, 0, 0, 0]);
        result == 0 || result == ENOENT
    };
    remove() || (depth > 0 && remove_groups_in(parent, name, depth - 1) && remove())
}

/// Removes the groups in a group. Returns false if it cannot be read.
fn remove_groups_in(parent: i32, name: *const u8, depth: u32) -> bool {
    const O_CLOEXEC: usize = 0o2_000_000;
    let dir = call(number::OPENAT, [parent as usize, name as usize, O_CLOEXEC, 0, 0, 0]);
    if dir < 0 {
        return false;
    }
    let mut buffer = MaybeUninit::<[u64; 256]>::uninit();
    let start = buffer.as_mut_ptr().cast::<u8>();
    loop {
        let size = size_of::<[u64; 256]>();
        let read = call(number::GETDENTS64, [dir as usize, start as usize, size, 0, 0, 0]);
        if read <= 0 {
            break;
        }
        let mut at = 0;
        while at < read as usize {
            // SAFETY: the kernel has just written whole entries up to `read`, each with its length (getdents(2)).
            let entry = unsafe { Entry::at(start.wrapping_add(at)) };
            if entry.is_group() {
                // Ignored: the caller finds its group in use.
                remove_group(dir as i32, entry.name, depth);
            }
            at += entry.bytes;
        }
    }
    call(number::CLOSE, [dir as usize, 0, 0, 0, 0, 0]);
    true
}

/// An entry of a directory.
struct Entry {
    bytes: usize,
    kind: u8,
    name: *const u8,
}

impl Entry {
    /// Reads the entry at that place.
    ///
    /// # Safety
    /// The kernel has written it there.
    unsafe fn at(place: *const u8) -> Entry {
        // SAFETY: after two numbers of 64 bits comes the length, of 16 bits. Entries are aligned to 64 bits.
        let bytes = unsafe { place.wrapping_add(16).cast::<u16>().read() };
        // SAFETY: then comes the kind, of 8 bits, and the name.
        let kind = unsafe { place.wrapping_add(18).read() };
        Entry { bytes: usize::from(bytes), kind, name: place.wrapping_add(19) }
    }

    /// Returns true for a directory in the read one. The names of hidden ones belong to no group of ours.
    fn is_group(&self) -> bool {
        const DT_DIR: u8 = 4;
        // SAFETY: a name has at least its NUL.
        self.kind == DT_DIR && unsafe { *self.name } != b'.'
    }
}
