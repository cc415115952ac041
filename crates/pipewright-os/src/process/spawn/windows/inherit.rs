//! Handles beside stdio: inheritable for the moment of one start.
//!
//! A child knows an inherited handle by its number, and a copy would have another one. So the handle
//! itself is made inheritable, while the child is created. It is the command's own, and a command
//! starts one child at a time; so nobody else makes it inheritable, or not, meanwhile. A start that lets its
//! child have whatever is inheritable waits until there is nothing of other starts ([`Turn`]). Only a start
//! by other code of this program, as std's, can still take it.

use std::io;
use std::os::windows::io::{AsHandle as _, AsRawHandle as _};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use windows_sys::Win32::Foundation::{HANDLE, HANDLE_FLAG_INHERIT, SetHandleInformation};

use crate::base::handle::{Handle, inheritable};
use crate::process::spawn::{BadInput, Inherit, Plan, SpawnError, Step};

/// The right to have handles that can be inherited, for the time of one start.
///
/// Starts that list what their child inherits have it together: no list takes what is of another. One that
/// takes everything has it alone, as its child would keep the pipes of the others open.
#[derive(Debug)]
pub(super) enum Turn {
    WithOthers(#[expect(dead_code, reason = "held")] RwLockReadGuard<'static, ()>),
    Alone(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>),
}

impl Turn {
    /// Waits for it.
    pub(super) fn of(plan: &Plan<'_>) -> Turn {
        static STARTS: RwLock<()> = RwLock::new(());
        match plan.inherit {
            Inherit::List(_) => {
                Turn::WithOthers(STARTS.read().unwrap_or_else(PoisonError::into_inner))
            }
            _ => Turn::Alone(STARTS.write().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

/// The handles of a plan.
#[derive(Debug)]
pub(super) struct Listed<'a>(&'a [(Handle, Option<i32>)]);

impl<'a> Listed<'a> {
    pub(super) fn new(plan: &Plan<'a>) -> Result<Listed<'a>, SpawnError> {
        let list = plan.inherit.list();
        for (index, (handle, _)) in list.iter().enumerate() {
            let number = handle.number();
            // The system would refuse the whole list, without a word which entry it is.
            if list.iter().take(index).any(|(earlier, _)| earlier.number() == number) {
                return Err(SpawnError::bad(BadInput::InheritTwice(index)));
            }
        }
        Ok(Listed(list))
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

/// Those that were not inheritable before.
#[derive(Debug)]
pub(super) struct Inheritable<'a>(Vec<&'a Handle>);

impl Drop for Inheritable<'_> {
    fn drop(&mut self) {
        for handle in &self.0 {
            // Ignored: it could be set, so it can be unset.
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
