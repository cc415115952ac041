//! Inheritance of a channel end: the variables that announce it, and the child's claim.

use std::env;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{ChannelEnd, imp};
use crate::base::handle::Handle;

/// Returns the environment variables that announce the channel end that a child inherits. The first holds its
/// number. The second, if any, identifies the end, because another handle may get the number later.
///
/// Descendants of the child inherit the variables but not the end. The second variable keeps them from mistaking
/// one of their own handles for the end.
///
/// # Platform
/// Unix: `VARIABLE_ID` is the number again, and `st_dev` and `st_ino` of the socket. Windows: there is no
/// second variable.
#[must_use]
pub fn variables(variable: &str, handle: &Handle) -> [(String, Option<String>); 2] {
    let number = handle.number();
    let id = imp::id(handle).map(|id| format!("{number}:{id}"));
    [(variable.to_owned(), Some(number.to_string())), (id_variable(variable), id)]
}

fn id_variable(variable: &str) -> String {
    format!("{variable}_ID")
}

/// True once this process has claimed the end that it inherited.
static CLAIMED: AtomicBool = AtomicBool::new(false);

/// The state of the channel end that a process may have inherited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inheritance {
    /// None was inherited.
    Nothing,
    /// One was inherited and not claimed.
    Unclaimed,
    /// One was [claimed](inherited). It may be closed by now.
    Claimed,
}

/// Returns the state of the channel end that this process may have inherited, without claiming it. See
/// [`inherited`].
#[must_use]
pub fn inheritance(variable: &str) -> Inheritance {
    if CLAIMED.load(Ordering::SeqCst) {
        return Inheritance::Claimed;
    }
    match announced(variable) {
        Ok(_) => Inheritance::Unclaimed,
        // Another thread may just have claimed it.
        Err(_) if CLAIMED.load(Ordering::SeqCst) => Inheritance::Claimed,
        Err(_) => Inheritance::Nothing,
    }
}

/// Claims the channel end that this process inherited from its parent. The environment variable holds its
/// number. This works once per process, and children of this process don't inherit the end.
///
/// # Platform
/// Unix: accepts one end of a pair of stream sockets without `FD_CLOEXEC`, and if `VARIABLE_ID` is set, only the end
/// that it identifies. A handle opened by this program is therefore not accepted, unless it is such a pair without the
/// flag, which std never creates: so a stale variable cannot claim a handle of other code. Windows: accepts an
/// inherited pipe end that was opened for overlapped calls.
///
/// # Errors
/// `NotFound`: the variable or the handle does not exist. `InvalidInput`: the handle is not a channel end.
pub fn inherited(variable: &str) -> io::Result<ChannelEnd> {
    let number = announced(variable);
    if CLAIMED.load(Ordering::SeqCst) {
        return Err(io::ErrorKind::NotFound.into());
    }
    let number = number?;
    if CLAIMED.swap(true, Ordering::SeqCst) {
        return Err(io::ErrorKind::NotFound.into());
    }
    imp::inherited(number).map(ChannelEnd::of)
}

/// Returns the number in the variable, if this process has inherited such an end.
fn announced(variable: &str) -> io::Result<i32> {
    let number = env::var(variable).ok().and_then(|number| number.parse().ok());
    let number: i32 = number.filter(|number| *number > 2).ok_or(io::ErrorKind::NotFound)?;
    let id = env::var(id_variable(variable)).ok();
    // Another host left a variable for another number behind.
    let id = id.as_deref().and_then(|id| id.strip_prefix(&format!("{number}:")));
    imp::check(number, id)?;
    Ok(number)
}
