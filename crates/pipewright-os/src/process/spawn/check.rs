//! Checks of a plan that hold on every system.

use std::ffi::{OsStr, OsString};
use std::io;

use super::{BadInput, Env, Plan, SpawnError, Step};

pub(super) fn check(plan: &Plan<'_>) -> Result<(), SpawnError> {
    let has_nul = |text: &OsStr| contains(text.as_encoded_bytes(), 0);
    let bad = |input| Err(SpawnError::bad(input));
    let std_rules = plan.unix.std_rules;
    if plan.program.is_empty() {
        // execvp(3) returns this error. (On Windows std refuses an empty name, too.)
        let not_found = SpawnError { step: Step::Exec, source: io::ErrorKind::NotFound.into() };
        return if std_rules && cfg!(unix) { Err(not_found) } else { bad(BadInput::EmptyProgram) };
    }
    if has_nul(plan.program) || plan.arg0.is_some_and(has_nul) {
        return bad(BadInput::NulInProgram);
    }
    if let Some(index) = plan.args.iter().position(|arg| has_nul(arg)) {
        return bad(BadInput::NulInArg(index));
    }
    if let Env::Exactly(variables) = plan.env {
        let is_bad = |(name, value): &(OsString, OsString)| match std_rules {
            true => has_nul(name) || has_nul(value),
            false => is_bad_name(name) || has_nul(value),
        };
        if let Some(index) = variables.iter().position(is_bad) {
            return bad(BadInput::BadVariable(index));
        }
    }
    let dirs = [plan.current_dir, plan.unix.chroot.as_deref()];
    if dirs.iter().flatten().any(|dir| has_nul(dir.as_os_str())) {
        return bad(BadInput::NulInDirectory);
    }
    Ok(())
}

/// Returns true if the text contains the byte. Not inlined: many places call it, and none is time-critical.
#[inline(never)]
fn contains(text: &[u8], byte: u8) -> bool {
    text.contains(&byte)
}

/// Returns true if the name is not valid. It may start with `=`, as std allows, but not contain it
/// elsewhere.
fn is_bad_name(name: &OsString) -> bool {
    let name = name.as_encoded_bytes();
    name.is_empty() || contains(name, 0) || contains(&name[1..], b'=')
}
