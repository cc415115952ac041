//! Handles beside stdio: inheritable only during one start.
//!
//! A child identifies an inherited handle by its number, and a copy would have another one. So the handle
//! itself is made inheritable while the child is created. The handle belongs to the command, and a command
//! starts one child at a time, so nothing else changes its inheritance meanwhile. A start whose child
//! inherits every inheritable handle waits until no other start has marked handles ([`InheritLock`]). Only a
//! start by other code of this program, such as std's, can still pass the handle to its child.

use std::io;
use std::os::windows::io::{AsHandle as _, AsRawHandle as _};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use windows_sys::Win32::Foundation::{HANDLE, HANDLE_FLAG_INHERIT, SetHandleInformation};

use crate::base::handle::{Handle, inheritable};
use crate::process::spawn::{BadInput, Inherit, Plan, SpawnError, Step};

/// The right to have inheritable handles, for the time of one start.
///
/// Starts that list the handles of their child share it: no list includes another start's handles. A start
/// that passes every inheritable handle has it alone, because its child would keep the pipes of other starts
/// open.
#[derive(Debug)]
pub(super) enum InheritLock {
    Shared(#[expect(dead_code, reason = "held")] RwLockReadGuard<'static, ()>),
    Exclusive(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>),
}

impl InheritLock {
    /// Waits for the right.
    pub(super) fn of(plan: &Plan<'_>) -> InheritLock {
        static STARTS: RwLock<()> = RwLock::new(());
        match plan.inherit {
            Inherit::List(_) => {
                InheritLock::Shared(STARTS.read().unwrap_or_else(PoisonError::into_inner))
            }
            _ => InheritLock::Exclusive(STARTS.write().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

/// The handles of a plan.
#[derive(Debug)]
pub(super) struct InheritList<'a>(&'a [(Handle, Option<i32>)]);

impl<'a> InheritList<'a> {
    pub(super) fn new(plan: &Plan<'a>) -> Result<InheritList<'a>, SpawnError> {
        let list = plan.inherit.list();
        for (index, (handle, _)) in list.iter().enumerate() {
            let number = handle.number();
            // The system would refuse the whole list, without naming the entry.
            if list.iter().take(index).any(|(earlier, _)| earlier.number() == number) {
                return Err(SpawnError::bad(BadInput::InheritTwice(index)));
            }
        }
        Ok(InheritList(list))
    }

    pub(super) fn raw(&self) -> impl Iterator<Item = HANDLE> {
        self.0.iter().map(|(handle, _)| handle.as_raw_handle())
    }

    /// Makes them inheritable, until the result is dropped.
    pub(super) fn make_inheritable(&self) -> Result<Inheritable<'a>, SpawnError> {
        let mut marked = Inheritable(Vec::new());
        for (index, (handle, _)) in self.0.iter().enumerate() {
            let made = inheritable(handle.as_handle())
                .and_then(|already| if already { Ok(false) } else { mark(handle, true) });
            match made {
                Ok(true) => marked.0.push(handle),
                Ok(false) => {}
                Err(error) => return Err(SpawnError::new(Step::Inherit(index), error)),
            }
        }
        Ok(marked)
    }
}

/// The handles that were not inheritable before.
#[derive(Debug)]
pub(super) struct Inheritable<'a>(Vec<&'a Handle>);

impl Drop for Inheritable<'_> {
    fn drop(&mut self) {
        for handle in &self.0 {
            // Ignored: setting the flag worked, so clearing it does too.
            let _ = mark(handle, false);
        }
    }
}

fn mark(handle: &Handle, inherit: bool) -> io::Result<bool> {
    let flag = if inherit { HANDLE_FLAG_INHERIT } else { 0 };
    // SAFETY: an open handle and two numbers.
    match unsafe { SetHandleInformation(handle.as_raw_handle(), HANDLE_FLAG_INHERIT, flag) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(true),
    }
}
