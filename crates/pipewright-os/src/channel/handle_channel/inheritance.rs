//! The end of a link that a child inherits: how it is told, and how the child claims it.

use std::env;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{End, imp};
use crate::base::handle::Handle;

/// The environment variables that tell a child the end of a link that it inherits: the first holds its number, and the
/// second, where there is one, tells that end from whatever else has the number later.
///
/// Descendants of the child inherit the variables too, but not the end: the second one keeps them from taking another
/// handle of theirs for it.
///
/// # Platform
/// Unix: `VARIABLE_ID` is the number again, and `st_dev` and `st_ino` of the socket. Windows: there is none.
#[must_use]
pub fn variables(variable: &str, handle: &Handle) -> [(String, Option<String>); 2] {
    let number = handle.number();
    let id = imp::id(handle).map(|id| format!("{number}:{id}"));
    [(variable.to_owned(), Some(number.to_string())), (id_variable(variable), id)]
}

fn id_variable(variable: &str) -> String {
    format!("{variable}_ID")
}

/// Set once this process has claimed the end of a link that it inherited.
static CLAIMED: AtomicBool = AtomicBool::new(false);

/// The end of a link that a process may have inherited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inheritance {
    /// There is none.
    Nothing,
    /// Nobody has claimed it yet.
    Unclaimed,
    /// It was [claimed](inherited), and may be closed by now.
    Claimed,
}

/// Looks for the end of a link that the parent of this process has passed on, and leaves it alone. See [`inherited`].
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

/// Claims the end of a link that the parent of this process has passed on: its number is the value of that
/// environment variable. Works once in the life of a process; the end is not passed on to children afterwards.
///
/// # Platform
/// Unix: what is accepted is one end of a pair of stream sockets, without `FD_CLOEXEC`, which is that of
/// `VARIABLE_ID` if this is set. What this program has opened by itself is none, unless it has made such a pair and has
/// left that flag out, which std does not: so a variable that somebody else left behind takes nobody's handle. Windows: a pipe end that was inherited, and on which calls overlap.
///
/// # Errors
/// `NotFound`: there is no such variable, or no such handle. `InvalidInput`: it is no end of a link.
pub fn inherited(variable: &str) -> io::Result<End> {
    let number = announced(variable);
    if CLAIMED.load(Ordering::SeqCst) {
        return Err(io::ErrorKind::NotFound.into());
    }
    let number = number?;
    if CLAIMED.swap(true, Ordering::SeqCst) {
        return Err(io::ErrorKind::NotFound.into());
    }
    imp::inherited(number).map(End::of)
}

/// Returns the number of the end that the variable tells, if this process has inherited it.
fn announced(variable: &str) -> io::Result<i32> {
    let number = env::var(variable).ok().and_then(|number| number.parse().ok());
    let number: i32 = number.filter(|number| *number > 2).ok_or(io::ErrorKind::NotFound)?;
    let id = env::var(id_variable(variable)).ok();
    // One of another number was left behind by another host.
    let id = id.as_deref().and_then(|id| id.strip_prefix(&format!("{number}:")));
    imp::check(number, id)?;
    Ok(number)
}

pub(super) fn not_passed_on() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "the handle was not inherited from the parent process",
    )
}
