//! Steps as numbers, for the report of a child to its parent.

use crate::process::spawn::Step;

pub(super) fn number_of(step: Step) -> u32 {
    let (step, index) = match step {
        Step::Check(_) | Step::Create | Step::Breakaway => (0, 0),
        Step::Group => (1, 0),
        Step::Limit(index) => (2, index),
        Step::Umask => (3, 0),
        Step::Nice => (4, 0),
        Step::Chroot => (5, 0),
        Step::Identity => (6, 0),
        Step::CurrentDir => (7, 0),
        Step::Stdio(target) => (8, usize::from(target)),
        Step::Inherit(index) => (9, index),
        Step::CloseOthers => (10, 0),
        Step::ParentDeath => (11, 0),
        Step::Exec => (12, 0),
        Step::Contain => (13, 0),
        Step::PreExec => (14, 0),
        Step::Terminal => (15, 0),
        Step::TreeLimits => (16, 0),
    };
    step | ((index as u32) << 8)
}

/// Returns the step of a number from [`number_of`].
pub(super) fn step_of(number: u32) -> Step {
    let index = (number >> 8) as usize;
    match number & 0xff {
        1 => Step::Group,
        2 => Step::Limit(index),
        3 => Step::Umask,
        4 => Step::Nice,
        5 => Step::Chroot,
        6 => Step::Identity,
        7 => Step::CurrentDir,
        8 => Step::Stdio(index as u8),
        9 => Step::Inherit(index),
        10 => Step::CloseOthers,
        11 => Step::ParentDeath,
        12 => Step::Exec,
        13 => Step::Contain,
        14 => Step::PreExec,
        15 => Step::Terminal,
        16 => Step::TreeLimits,
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
