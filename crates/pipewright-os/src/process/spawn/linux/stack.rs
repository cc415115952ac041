//! Stacks for children: used for the microseconds between clone and exec, then reused.

use std::io;
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// The size of a stack: enough for a chain of system calls, and a whole number of pages of any size that
/// Linux has. The child's deepest frame holds 1 KiB of directory entries.
const STACK_BYTES: usize = 64 << 10;

/// The number of pooled stacks: three for each thread that is starting a supervised child, one for each
/// that is starting another child.
const POOLED_STACKS: usize = 16;

static POOL: StackPool = StackPool::new();

struct StackPool {
    free: [AtomicPtr<u8>; POOLED_STACKS],
    /// The stacks that did not fit into the pool while a process was on them: a list, each with the address
    /// of the next. In a fork of this process they stay busy for ever.
    busy: AtomicPtr<u8>,
}

/// A mapping that belongs to one start at a time; its drop returns it to the pool.
pub(super) struct Stack {
    base: NonNull<u8>,
}

impl StackPool {
    const fn new() -> StackPool {
        StackPool {
            free: [const { AtomicPtr::new(ptr::null_mut()) }; POOLED_STACKS],
            busy: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Takes a stack that no process is on any more.
    fn take(&self) -> Option<NonNull<u8>> {
        for place in &self.free {
            if let Some(base) = NonNull::new(place.swap(ptr::null_mut(), Ordering::Acquire)) {
                if !is_used(base) {
                    return Some(base);
                }
                self.put(base);
            }
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
        found
    }

    fn put(&self, base: NonNull<u8>) {
        let (none, new) = (ptr::null_mut(), base.as_ptr());
        for place in &self.free {
            if place.compare_exchange(none, new, Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
        }
        if !is_used(base) {
            // SAFETY: the mapping is whole and owned here alone, and the child that ran on it has left it.
            let _ = unsafe { libc::munmap(new.cast(), guard_bytes() + STACK_BYTES) };
            return;
        }
        // The list is only ever taken as a whole, so its first entry cannot have been removed and added
        // again (ABA).
        let add = |first| {
            link(base).store(first, Ordering::Relaxed);
            Some(new)
        };
        let _ = self.busy.fetch_update(Ordering::Release, Ordering::Relaxed, add);
    }
}

impl Stack {
    pub(super) fn take() -> io::Result<Stack> {
        match POOL.take() {
            Some(base) => Ok(Stack { base }),
            None => map(),
        }
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

fn map() -> io::Result<Stack> {
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
    NonNull::new(base.cast())
        .map(|base| Stack { base })
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_stacks_are_neither_lost_nor_reused() {
        let pool = StackPool::new();
        let mapped = || mem::ManuallyDrop::new(map().unwrap()).base;
        let mut all: Vec<_> = (0..POOLED_STACKS + 8).map(|_| mapped()).collect();
        for base in &all {
            mark(*base).store(1, Ordering::Relaxed);
            pool.put(*base);
        }
        assert_eq!(pool.take(), None, "a process is on each of them");
        for base in &all {
            mark(*base).store(0, Ordering::Relaxed);
        }
        let mut taken: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        taken.sort();
        all.sort();
        assert_eq!(taken, all, "each once");
    }
}
