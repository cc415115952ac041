//! What no child can be given, on any system.

use std::ffi::{OsStr, OsString};
use std::io;

use super::{BadInput, Env, Plan, SpawnError, Step};

pub(super) fn check(plan: &Plan<'_>) -> Result<(), SpawnError> {
    let has_nul = |text: &OsStr| contains(text.as_encoded_bytes(), 0);
    let bad = |input| Err(SpawnError::bad(input));
    let std_rules = plan.unix.std_rules;
    if plan.program.is_empty() {
        // The word of execvp(3) on it. (On Windows std refuses it, too.)
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

/// Not inlined: it is asked in many places, and none of them is in a hurry.
#[inline(never)]
fn contains(text: &[u8], byte: u8) -> bool {
    text.contains(&byte)
}

/// A name may start with `=`, as std allows, but not contain it elsewhere.
fn is_bad_name(name: &OsString) -> bool {
    let name = name.as_encoded_bytes();
    name.is_empty() || contains(name, 0) || contains(&name[1..], b'=')
}
