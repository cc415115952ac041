//! Creates a ring with the best features of the kernel, or returns the reason why it cannot.

use std::io;

use io_uring::opcode::{AsyncCancel, Fallocate, Fsync, Nop, PollAdd, Read, Write};
use io_uring::types::{CancelBuilder, Timespec};
use io_uring::{IoUring, Probe};

use super::super::RingOptions;
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
    limit_workers(&ring, options.workers);
    // A seccomp filter may allow the first call but not the one that submits.
    test_nop(&mut ring).map_err(judge)?;
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
    cooperative.setup_coop_taskrun().setup_single_issuer();
    // Completions are produced only in our own calls that ask for them. Nothing interrupts this thread, and a
    // request that is done after a submit was done inside it.
    builder.setup_single_issuer().setup_defer_taskrun();
    for builder in [&builder, &cooperative] {
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

/// Limits the kernel threads. The kernel has its own limit for those that work on files, and only the user's
/// process limit for the others.
fn limit_workers(ring: &IoUring, workers: Option<u32>) {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let most = workers.unwrap_or(4 * processors as u32);
    // 0 keeps a limit. Ignored: kernels before 5.15 have no such call.
    let _ = ring.submitter().register_iowq_max_workers(&mut [workers.unwrap_or(0), most]);
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
