//! Stacks for children: taken for the microseconds between clone and exec, then used again.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// Enough for a chain of system calls, and a whole number of pages of any size that Linux has; the
/// child's deepest frame holds 1 KiB of directory entries.
const STACK_BYTES: usize = 64 << 10;

/// How many stacks are kept: three for each thread that starts supervised children at the moment,
/// one for each that starts others.
const KEPT_STACKS: usize = 16;

static KEPT: [AtomicPtr<u8>; KEPT_STACKS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; KEPT_STACKS];

/// A mapping that belongs to one start at a time; kept for the next when dropped.
pub(super) struct Stack {
    base: NonNull<u8>,
}

impl Stack {
    pub(super) fn take() -> io::Result<Stack> {
        for place in &KEPT {
            if let Some(base) = NonNull::new(place.swap(ptr::null_mut(), Ordering::Acquire)) {
                let stack = Stack { base };
                if !stack.is_used() {
                    return Ok(stack);
                }
                // Dropped, it is kept for later.
            }
        }
        map()
    }

    /// The lowest byte that may be used.
    pub(super) fn low(&self) -> *mut u8 {
        self.base.as_ptr().wrapping_add(guard_bytes())
    }

    /// How many bytes may be used above [`low`](Self::low).
    pub(super) const BYTES: usize = STACK_BYTES;

    /// One past the highest byte; aligned as a page is.
    pub(super) fn top(&self) -> *mut u8 {
        self.low().wrapping_add(STACK_BYTES)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let base = self.base.as_ptr();
        for place in &KEPT {
            let put =
                place.compare_exchange(ptr::null_mut(), base, Ordering::Release, Ordering::Relaxed);
            if put.is_ok() {
                return;
            }
        }
        if self.is_used() {
            // Nobody waits for who is on it; it stays until this process ends.
            return;
        }
        // SAFETY: the mapping is whole, ours alone, and the child that ran on it has left it.
        let _ = unsafe { libc::munmap(base.cast(), guard_bytes() + STACK_BYTES) };
    }
}

impl Stack {
    /// A word below the deepest frame: not 0 while a process that nobody waits for is on the stack.
    /// The kernel clears it when that process execs or ends (`CLONE_CHILD_CLEARTID`, clone(2)).
    pub(super) fn mark(&self) -> *mut i32 {
        self.low().cast()
    }

    pub(super) fn mark_used(&self) {
        self.word().store(1, Ordering::Relaxed);
    }

    pub(super) fn mark_unused(&self) {
        self.word().store(0, Ordering::Relaxed);
    }

    fn is_used(&self) -> bool {
        self.word().load(Ordering::Acquire) != 0
    }

    fn word(&self) -> &AtomicI32 {
        // SAFETY: the lowest word of a live mapping, aligned as a page is; nobody but the kernel
        // writes to it otherwise.
        unsafe { AtomicI32::from_ptr(self.mark()) }
    }
}

/// A page below the stack that is never accessible: a child that ran over would fault, not write
/// into our heap.
fn guard_bytes() -> usize {
    crate::memory::page_bytes()
}

fn map() -> io::Result<Stack> {
    // SAFETY: a fresh private mapping, wherever the kernel likes.
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
    // SAFETY: the first page of the mapping just made. Ignored: without a guard it works as well.
    let _ = unsafe { libc::mprotect(base, guard_bytes(), libc::PROT_NONE) };
    NonNull::new(base.cast())
        .map(|base| Stack { base })
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
}
