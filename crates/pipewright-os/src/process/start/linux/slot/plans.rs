//! The memory of a slot's plans, which the supervisor maps and this process only writes to.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::request::{Handles, PlanWords};
use super::{SpawnError, Step};
use crate::process::nolibc::message::PLAN_BYTES;

/// The most bytes of a plan that stay in memory for the next one.
const KEPT_BYTES: usize = 1 << 20;

/// The memory. This process does not map it: a write reports a lack of memory, an access would end this process.
#[derive(Debug)]
pub(super) struct Plans {
    memory: OwnedFd,
    /// The address of the memory in the supervisor.
    base: u64,
    /// The bytes of the last plan.
    written: usize,
    /// The words of the last plan, kept for their memory.
    words: Vec<u8>,
}

impl Plans {
    pub(super) fn new() -> io::Result<Plans> {
        const NAME: &std::ffi::CStr = c"pipewright-plans";
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Without the flag the kernel writes a warning to its log, or refuses (vm.memfd_noexec). Linux before 6.3 does
        // not know it.
        let memory = match rustix::fs::memfd_create(NAME, flags | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => rustix::fs::memfd_create(NAME, flags),
            made => made,
        }?;
        // Other code of this process could otherwise truncate it, and the supervisor would be killed (SIGBUS).
        rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK)?;
        Ok(Plans { memory, base: 0, written: 0, words: Vec::new() })
    }

    /// Sets the address of the memory in the supervisor.
    pub(super) fn at(self, base: u64) -> Plans {
        Plans { base, ..self }
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Writes a plan, and returns its size. No start may be in progress.
    pub(super) fn write(
        &mut self,
        plan: &PlanWords<'_>,
        handles: &Handles<'_>,
    ) -> Result<usize, SpawnError> {
        self.words.clear();
        plan.encode(handles, self.base, &mut self.words);
        let strings = plan.layout.bytes();
        let length = self.words.len() + strings.len();
        if length > PLAN_BYTES {
            // More than the kernel accepts.
            return Err(SpawnError::new(Step::Exec, Errno::TOOBIG.into()));
        }
        // A write beyond the limit would end this process (SIGXFSZ).
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < length as u64) {
            return Err(SpawnError::new(Step::Create, Errno::FBIG.into()));
        }
        let parts = [IoSlice::new(&self.words), IoSlice::new(strings)];
        let written = rustix::io::retry_on_intr(|| rustix::io::pwritev(&self.memory, &parts, 0));
        match written {
            Ok(count) if count == length => {
                self.written = length;
                Ok(length)
            }
            // There was no memory for the rest.
            Ok(_) => Err(SpawnError::new(Step::Create, Errno::NOMEM.into())),
            Err(error) => Err(SpawnError::new(Step::Create, error.into())),
        }
    }

    /// Frees the memory of a large plan. No start may be in progress.
    pub(super) fn trim(&mut self) {
        if self.written > KEPT_BYTES {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Ignored: the memory is used for the next plan.
            let _ = rustix::fs::fallocate(&self.memory, flags, 0, self.written as u64);
            self.written = 0;
            self.words = Vec::new();
        }
    }
}
