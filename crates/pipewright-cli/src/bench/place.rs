//! Where reader and writer run: the same processor, another core, or wherever the system puts them.
//!
//! It makes a difference of up to six times, so a figure that does not say it says little.

use clap::ValueEnum;

/// How the two are to be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Placement {
    /// On different cores
    Other,
    /// On the same processor, taking turns
    Same,
    /// On two processors of one core
    Sibling,
    /// Wherever the system puts them, which it may change at any time
    None,
}

/// The processors of the two. `None`: not pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place {
    pub(super) reader: Option<usize>,
    pub(super) writer: Option<usize>,
}

impl Placement {
    /// The processors, of those that are allowed; or why it cannot be had.
    pub(super) fn place(
        self,
        allowed: &[usize],
        same_core: impl Fn(usize) -> Option<Vec<usize>>,
    ) -> Result<Place, &'static str> {
        let Some(&writer) = allowed.first() else {
            return if self == Placement::None {
                Ok(Place::default())
            } else {
                Err("this system does not pin threads to processors")
            };
        };
        let core = same_core(writer);
        let in_core =
            |processor: &usize| core.as_ref().is_some_and(|core| core.contains(processor));
        let others = || allowed.iter().copied().filter(|processor| *processor != writer);
        let reader = match self {
            Placement::None => return Ok(Place::default()),
            Placement::Same => Some(writer),
            Placement::Sibling => others().find(in_core),
            Placement::Other => others().find(|processor| !in_core(processor)),
        };
        match reader {
            Some(reader) => Ok(Place { reader: Some(reader), writer: Some(writer) }),
            None if self == Placement::Sibling => Err("no core here has two processors for us"),
            None if allowed.len() == 1 => Err("there is only one processor for us"),
            None => Err("there is only one core for us"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two processors a core.
    fn pairs(processor: usize) -> Option<Vec<usize>> {
        Some(vec![processor & !1, processor | 1])
    }

    #[test]
    fn processors_are_chosen_among_those_that_are_allowed() {
        let place = |placement: Placement, allowed: &[usize]| {
            placement.place(allowed, pairs).map(|it| (it.writer, it.reader))
        };
        assert_eq!(place(Placement::Other, &[2, 3, 4, 5]), Ok((Some(2), Some(4))));
        assert_eq!(place(Placement::Sibling, &[2, 3, 4, 5]), Ok((Some(2), Some(3))));
        assert_eq!(place(Placement::Same, &[2, 3]), Ok((Some(2), Some(2))));
        assert_eq!(place(Placement::None, &[2, 3]), Ok((None, None)));
        assert_eq!(place(Placement::Other, &[3]), Err("there is only one processor for us"));
        assert_eq!(place(Placement::Other, &[2, 3]), Err("there is only one core for us"));
        assert!(place(Placement::Sibling, &[3, 4]).is_err());
        // macOS.
        assert_eq!(place(Placement::None, &[]), Ok((None, None)));
        assert!(place(Placement::Same, &[]).is_err());
        // Where nobody knows the cores, each processor counts as one.
        let unknown = Placement::Other.place(&[0, 1], |_| None);
        assert_eq!(unknown, Ok(Place { reader: Some(1), writer: Some(0) }));
    }
}
