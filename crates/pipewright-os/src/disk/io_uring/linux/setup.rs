//! Creates a ring with the best features of the kernel, or returns the reason why it cannot.

use std::cell::RefCell;
use std::io;

use io_uring::opcode::{AsyncCancel, Fallocate, Fsync, Nop, PollAdd, Read, Write};
use io_uring::types::{CancelBuilder, Timespec};
use io_uring::{IoUring, Probe};

use super::super::RingOptions;
use crate::base::generation::Generation;
use crate::base::test_hooks::{Forced, is_forced};
use crate::disk::unavailable::{RefusalContext, UnavailableReason};

/// The maximum number of entries of a ring. More operations are submitted in several calls.
const MAX_ENTRIES: usize = 32_768;
const MIN_ENTRIES: u32 = 8;

pub(super) fn set_up(options: RingOptions) -> Result<IoUring, UnavailableReason> {
    if is_forced(Forced::NoIoUring) {
        return Err(UnavailableReason::LeftOut);
    }
    let judge = |error: io::Error| RefusalContext::now().judge(&error);
    let depth = options.depth.clamp(MIN_ENTRIES as usize, MAX_ENTRIES) as u32;
    let mut ring = make(depth).map_err(judge)?;
    check_operations(&ring)?;
    // A seccomp filter may allow the first call but not the one that submits.
    test_nop(&mut ring).map_err(judge)?;
    limit_workers(&ring, options.workers);
    Ok(ring)
}

/// Creates a ring. Kernels before 5.12 count its memory as locked memory, so a smaller one may fit.
fn make(mut entries: u32) -> io::Result<IoUring> {
    loop {
        match make_with_flags(entries) {
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && entries > MIN_ENTRIES => {
                entries = (entries / 2).max(MIN_ENTRIES);
            }
            result => return result,
        }
    }
}

fn make_with_flags(entries: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    // Children get neither the ring nor its mappings.
    builder.dontfork();
    let plain = builder.clone();
    let mut cooperative = builder.clone();
    cooperative.setup_coop_taskrun();
    let mut single = cooperative.clone();
    single.setup_single_issuer();
    // Completions are produced only in our own calls that ask for them. Nothing interrupts this thread, and a
    // request that is done after a submit was done inside it.
    builder.setup_single_issuer().setup_defer_taskrun();
    for builder in [&builder, &single, &cooperative] {
        match builder.build(entries) {
            // The kernel does not support a flag.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            result => return result,
        }
    }
    plain.build(entries)
}

fn check_operations(ring: &IoUring) -> Result<(), UnavailableReason> {
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(|error| match error.raw_os_error() {
        // Kernels before 5.6 have neither the probe nor the operations.
        Some(libc::EINVAL) => UnavailableReason::KernelTooOld,
        _ => RefusalContext::now().judge(&error),
    })?;
    for (operation, code) in [
        ("read", Read::CODE),
        ("write", Write::CODE),
        ("fsync", Fsync::CODE),
        ("fallocate", Fallocate::CODE),
        ("async_cancel", AsyncCancel::CODE),
        ("poll_add", PollAdd::CODE),
    ] {
        if !probe.is_supported(code) {
            return Err(UnavailableReason::OperationMissing { operation });
        }
    }
    Ok(())
}

/// The limits on the kernel threads, which a thread has for all its rings together.
struct WorkerLimits {
    made_in: Generation,
    /// Those of the living rings.
    asked: Vec<Option<u32>>,
    /// Those before the first of these rings.
    before: [u32; 2],
}

thread_local! {
    static LIMITS: RefCell<Option<WorkerLimits>> = const { RefCell::new(None) };
}

/// Limits the kernel threads for one more ring of this thread. The kernel has its own limit for those that work on files, and
/// only the user's process limit for the others.
fn limit_workers(ring: &IoUring, workers: Option<u32>) {
    LIMITS.with_borrow_mut(|limits| {
        // Not those of a process of which this is a fork.
        let known = limits.take().filter(|it| it.made_in.is_current() && !it.asked.is_empty());
        let limits = limits.insert(known.unwrap_or_else(|| WorkerLimits {
            made_in: Generation::current(),
            asked: Vec::new(),
            before: set_workers(ring, [0, 0]),
        }));
        limits.asked.push(workers);
        limits.apply(ring);
    });
}

/// Restores the limits that are in force without this ring of this thread.
pub(super) fn release_workers(ring: &IoUring, workers: Option<u32>) {
    LIMITS.with_borrow_mut(|limits| {
        let Some(limits) = limits else { return };
        if let Some(place) = limits.asked.iter().position(|asked| *asked == workers) {
            limits.asked.swap_remove(place);
        }
        if limits.asked.is_empty() {
            set_workers(ring, limits.before);
        } else {
            limits.apply(ring);
        }
    });
}

impl WorkerLimits {
    /// Sets the smallest limit that one of the rings wants.
    fn apply(&self, ring: &IoUring) {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let most = self.asked.iter().flatten().min().copied().unwrap_or(4 * processors as u32);
        set_workers(ring, [most, most]);
    }
}

/// Sets the limits for files and for others, and returns those before. 0 keeps one.
fn set_workers(ring: &IoUring, mut limits: [u32; 2]) -> [u32; 2] {
    // Ignored: kernels before 5.15 have no such call.
    match ring.submitter().register_iowq_max_workers(&mut limits) {
        Ok(()) => limits,
        Err(_) => [0, 0],
    }
}

fn test_nop(ring: &mut IoUring) -> io::Result<()> {
    let nothing = Nop::new().build();
    // SAFETY: an entry without a file and without memory.
    unsafe { ring.submission().push(&nothing) }.map_err(|_| io::ErrorKind::OutOfMemory)?;
    loop {
        match ring.submit_and_wait(1) {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    while ring.completion().next().is_some() {}
    Ok(())
}

/// Cancels all entries that have not started. Doesn't wait.
pub(super) fn cancel_all(ring: &IoUring) {
    // Ignored: kernels before 6.0 have no such call, and complete all entries.
    let _ = ring.submitter().register_sync_cancel(Some(Timespec::new()), CancelBuilder::any());
}
