//! The controllers of the kernel, and the limits that need them.

use crate::process::limits::{LimitKind, TreeLimits};

/// A controller of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Controller {
    Memory,
    Cpu,
    Pids,
}

impl Controller {
    pub(super) const ALL: [Controller; 3] = [Controller::Memory, Controller::Cpu, Controller::Pids];

    pub(super) fn name(self) -> &'static str {
        match self {
            Controller::Memory => "memory",
            Controller::Cpu => "cpu",
            Controller::Pids => "pids",
        }
    }

    /// Returns the limit that names the controller in an error: the first of those that need it.
    pub(super) fn kind(self) -> LimitKind {
        match self {
            Controller::Memory => LimitKind::Memory,
            Controller::Cpu => LimitKind::Cpu,
            Controller::Pids => LimitKind::Pids,
        }
    }
}

/// Returns the controller that holds a limit.
pub(super) fn of(kind: LimitKind) -> Controller {
    match kind {
        LimitKind::Memory | LimitKind::Swap | LimitKind::OomGroup => Controller::Memory,
        LimitKind::Cpu => Controller::Cpu,
        LimitKind::Pids => Controller::Pids,
    }
}

/// A set of controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Controllers(u8);

impl Controllers {
    pub(super) const NONE: Controllers = Controllers(0);

    /// Returns the controllers that the limits need.
    pub(super) fn of(limits: &TreeLimits) -> Controllers {
        limits.kinds().fold(Controllers::NONE, |set, kind| set.with(of(kind)))
    }

    pub(super) fn named(text: &str) -> Controllers {
        let is_named =
            |it: &Controller| text.split_ascii_whitespace().any(|word| word == it.name());
        let named = Controller::ALL.into_iter().filter(is_named);
        named.fold(Controllers::NONE, Controllers::with)
    }

    pub(super) fn with(self, controller: Controller) -> Controllers {
        Controllers(self.0 | 1 << controller as u8)
    }

    pub(super) fn has(self, controller: Controller) -> bool {
        self.0 & 1 << controller as u8 != 0
    }

    pub(super) fn and(self, other: Controllers) -> Controllers {
        Controllers(self.0 & other.0)
    }

    pub(super) fn without(self, other: Controllers) -> Controllers {
        Controllers(self.0 & !other.0)
    }

    pub(super) fn iter(self) -> impl Iterator<Item = Controller> {
        Controller::ALL.into_iter().filter(move |it| self.has(*it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_found_by_whole_words() {
        let named = Controllers::named("cpuset cpu io memory hugetlb\n");
        assert!(named.has(Controller::Cpu) && named.has(Controller::Memory));
        assert!(!named.has(Controller::Pids));
        assert_eq!(Controllers::named("cpuset pids.x"), Controllers::NONE);
    }

    #[test]
    fn limits_name_their_controllers() {
        let limits = TreeLimits { memory_swap_max_bytes: Some(0), ..TreeLimits::default() };
        let needed = Controllers::of(&limits);
        assert_eq!(needed.iter().collect::<Vec<_>>(), [Controller::Memory]);
        assert_eq!(needed.without(needed), Controllers::NONE);
    }
}
