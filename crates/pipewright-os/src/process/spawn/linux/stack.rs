//! Stacks for children: used for the microseconds between clone and exec, then reused.

use std::io;
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

/// The size of a stack: enough for a chain of system calls, and a whole number of pages of any size that
/// Linux has. The child's deepest frame holds 1 KiB of directory entries.
const STACK_BYTES: usize = 64 << 10;

/// The number of pooled stacks: three for each thread that is starting a supervised child, one for each
/// that is starting another child.
const POOLED_STACKS: usize = 48;

static POOL: StackPool = StackPool::new();

struct StackPool {
    places: [Place; POOLED_STACKS],
    /// The stacks that have no place, and were given back while a process was on them: a list, each with the address of the next.
    /// In a fork of this process they stay busy for ever.
    busy: AtomicPtr<u8>,
}

/// The place of a stack. Once there is one, it stays, so that its mark can be read at any time.
struct Place {
    base: AtomicPtr<u8>,
    is_taken: AtomicBool,
}

/// A mapping that belongs to one start at a time; its drop returns it to the pool.
pub(super) struct Stack {
    base: NonNull<u8>,
}

impl Place {
    const fn new() -> Place {
        Place { base: AtomicPtr::new(ptr::null_mut()), is_taken: AtomicBool::new(false) }
    }

    fn base(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.base.load(Ordering::Acquire))
    }

    /// Takes its stack, or maps one, unless another start has it or a process is on it.
    fn take(&self) -> Option<io::Result<NonNull<u8>>> {
        if self.is_taken.swap(true, Ordering::Acquire) {
            return None;
        }
        let found = match self.base() {
            None => map().inspect(|base| self.base.store(base.as_ptr(), Ordering::Release)),
            Some(base) if !is_used(base) => return Some(Ok(base)),
            Some(_) => {
                self.is_taken.store(false, Ordering::Release);
                return None;
            }
        };
        if found.is_err() {
            self.is_taken.store(false, Ordering::Release);
        }
        Some(found)
    }
}

impl StackPool {
    const fn new() -> StackPool {
        StackPool {
            places: [const { Place::new() }; POOLED_STACKS],
            busy: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Takes a stack that no process is on any more.
    fn take(&self) -> io::Result<NonNull<u8>> {
        if let Some(found) = self.places.iter().find_map(Place::take) {
            return found;
        }
        let mut found = None;
        let mut next = self.busy.swap(ptr::null_mut(), Ordering::Acquire);
        while let Some(base) = NonNull::new(next) {
            next = link(base).load(Ordering::Relaxed);
            if found.is_none() && !is_used(base) {
                found = Some(base);
            } else {
                self.put(base);
            }
        }
        found.map_or_else(map, Ok)
    }

    fn put(&self, base: NonNull<u8>) {
        let raw = base.as_ptr();
        if let Some(place) =
            self.places.iter().find(|place| place.base.load(Ordering::Relaxed) == raw)
        {
            place.is_taken.store(false, Ordering::Release);
            return;
        }
        if !is_used(base) {
            // SAFETY: the mapping is whole and owned here alone, and the child that ran on it has left it.
            let _ = unsafe { libc::munmap(raw.cast(), guard_bytes() + STACK_BYTES) };
            return;
        }
        // The list is only ever taken as a whole, so its first entry cannot have been removed and added
        // again (ABA).
        let add = |first| {
            link(base).store(first, Ordering::Relaxed);
            Some(raw)
        };
        let _ = self.busy.fetch_update(Ordering::Release, Ordering::Relaxed, add);
    }

    /// Returns the processes that are on stacks with a place. A 1 is no number of one: a start has set it (clone.rs).
    fn processes(&self) -> Vec<i32> {
        let marks = self.places.iter().filter_map(Place::base);
        marks.map(|base| mark(base).load(Ordering::Acquire)).filter(|pid| *pid > 1).collect()
    }
}

impl Stack {
    pub(super) fn take() -> io::Result<Stack> {
        POOL.take().map(|base| Stack { base })
    }

    /// Returns the lowest usable byte.
    pub(super) fn low(&self) -> *mut u8 {
        low(self.base)
    }

    /// The number of usable bytes above [`low`](Self::low).
    #[cfg(target_arch = "x86_64")]
    pub(super) const BYTES: usize = STACK_BYTES;

    /// Returns the address one past the highest byte, which is page-aligned.
    pub(super) fn top(&self) -> *mut u8 {
        self.low().wrapping_add(STACK_BYTES)
    }
}

/// Returns the numbers of processes that have not left the stacks of this process: their start is under way, or has left them behind.
pub(in crate::process::spawn) fn leaving() -> Vec<i32> {
    POOL.processes()
}

impl Drop for Stack {
    fn drop(&mut self) {
        POOL.put(self.base);
    }
}

impl Stack {
    /// Returns the address of a word below the deepest frame. It is not 0 while a process that no caller
    /// waits for is on the stack. The kernel sets it before that process begins and clears it when the
    /// process execs or ends (`CLONE_CHILD_SETTID` and `CLONE_CHILD_CLEARTID`, clone(2)). If this process
    /// set it, it would stay set if the process that calls clone were killed just before the call. (One that looks for stops
    /// does, and then one stack is lost.)
    pub(super) fn mark(&self) -> &AtomicI32 {
        mark(self.base)
    }
}

fn is_used(base: NonNull<u8>) -> bool {
    mark(base).load(Ordering::Acquire) != 0
}

fn mark<'a>(base: NonNull<u8>) -> &'a AtomicI32 {
    // SAFETY: the lowest word of a live mapping, page-aligned; otherwise only the kernel writes to it.
    unsafe { AtomicI32::from_ptr(low(base).cast()) }
}

/// Returns the word above the mark, also below the deepest frame.
fn link<'a>(base: NonNull<u8>) -> &'a AtomicPtr<u8> {
    // SAFETY: as above, and nothing else writes to this one.
    unsafe { AtomicPtr::from_ptr(low(base).wrapping_add(mem::size_of::<*mut u8>()).cast()) }
}

fn low(base: NonNull<u8>) -> *mut u8 {
    base.as_ptr().wrapping_add(guard_bytes())
}

/// Returns the size of the guard page below the stack, which is never accessible: a child that overran its
/// stack would fault, not write into the parent's heap.
fn guard_bytes() -> usize {
    crate::base::memory::page_bytes()
}

fn map() -> io::Result<NonNull<u8>> {
    // SAFETY: a fresh private mapping, at an address that the kernel chooses.
    let base = unsafe {
        libc::mmap(
            ptr::null_mut(),
            guard_bytes() + STACK_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the first page of the new mapping. Ignored: it works without a guard page as well.
    let _ = unsafe { libc::mprotect(base, guard_bytes(), libc::PROT_NONE) };
    NonNull::new(base.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_stacks_are_neither_lost_nor_reused() {
        let pool = StackPool::new();
        let mut all: Vec<_> = (0..POOLED_STACKS + 8).map(|_| pool.take().unwrap()).collect();
        for (base, pid) in all.iter().zip(2..) {
            mark(*base).store(pid, Ordering::Relaxed);
            pool.put(*base);
        }
        assert_eq!(pool.processes(), (2..2 + POOLED_STACKS as i32).collect::<Vec<_>>());
        let new = pool.take().unwrap();
        assert!(!all.contains(&new), "a process is on each of the others");
        for base in &all {
            mark(*base).store(0, Ordering::Relaxed);
        }
        assert!(pool.processes().is_empty());
        let mut taken: Vec<_> = all.iter().map(|_| pool.take().unwrap()).collect();
        taken.sort();
        all.sort();
        assert_eq!(taken, all, "each once");
        pool.put(new);
    }
}
