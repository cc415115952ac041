//! Steps as numbers, for the report of a child to its parent.

use crate::process::nolibc::step;
use crate::process::spawn::Step;

#[cfg(any(target_os = "macos", test))]
pub(super) fn number_of(step: Step) -> u32 {
    match step {
        Step::Check(_) | Step::Create | Step::Breakaway => step::CREATE,
        Step::Group => step::GROUP,
        Step::Limit(index) => step::with_index(step::LIMIT, index),
        Step::Umask => step::UMASK,
        Step::Nice => step::NICE,
        Step::Chroot => step::CHROOT,
        Step::Identity => step::IDENTITY,
        Step::CurrentDir => step::CURRENT_DIR,
        Step::Stdio(target) => step::with_index(step::STDIO, usize::from(target)),
        Step::Inherit(index) => step::with_index(step::INHERIT, index),
        Step::CloseOthers => step::CLOSE_OTHERS,
        Step::ParentDeath => step::PARENT_DEATH,
        Step::Exec => step::EXEC,
        Step::Contain => step::CONTAIN,
        Step::PreExec => step::PRE_EXEC,
        Step::Terminal => step::TERMINAL,
        Step::TreeLimits => step::TREE_LIMITS,
    }
}

/// Returns the step of a number.
pub(super) fn step_of(number: u32) -> Step {
    let (step, index) = step::parts(number);
    match step {
        step::GROUP => Step::Group,
        step::LIMIT => Step::Limit(index),
        step::UMASK => Step::Umask,
        step::NICE => Step::Nice,
        step::CHROOT => Step::Chroot,
        step::IDENTITY => Step::Identity,
        step::CURRENT_DIR => Step::CurrentDir,
        step::STDIO => Step::Stdio(index as u8),
        step::INHERIT => Step::Inherit(index),
        step::CLOSE_OTHERS => Step::CloseOthers,
        step::PARENT_DEATH => Step::ParentDeath,
        step::EXEC => Step::Exec,
        step::CONTAIN => Step::Contain,
        step::PRE_EXEC => Step::PreExec,
        step::TERMINAL => Step::Terminal,
        step::TREE_LIMITS => Step::TreeLimits,
        _ => Step::Create,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_round_trip_through_numbers() {
        let indexed = [Step::Limit(3), Step::Stdio(2), Step::Inherit(7)];
        let plain = [
            Step::Create,
            Step::Group,
            Step::Umask,
            Step::Nice,
            Step::Chroot,
            Step::Identity,
            Step::CurrentDir,
            Step::CloseOthers,
            Step::ParentDeath,
            Step::Exec,
            Step::Contain,
            Step::PreExec,
            Step::Terminal,
            Step::TreeLimits,
        ];
        for step in indexed.into_iter().chain(plain) {
            assert_eq!(step_of(number_of(step)), step);
        }
    }
}
