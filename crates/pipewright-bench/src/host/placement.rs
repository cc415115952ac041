//! The processors of reader and writer: the same one, two cores, or not pinned.
//!
//! The placement changes figures by up to six times, so every report states it.

use std::io;
use std::thread;

use pipewright_os::base::cpu;

use crate::options::Placement;

/// The processors of reader and writer. `None`: not pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Processors {
    pub(crate) reader: Option<usize>,
    pub(crate) writer: Option<usize>,
}

/// Returns the processors for that placement after pinning threads to them once, or the reason why that failed.
pub(crate) fn processors(placement: Placement) -> Result<Processors, String> {
    let allowed = cpu::allowed().unwrap_or_default();
    let chosen = choose(placement, &allowed, cpu::same_core)?;
    // A seccomp filter may refuse the call. A separate thread, because a thread keeps its processor until it ends.
    let tried = thread::spawn(move || pin(chosen.reader).and_then(|()| pin(chosen.writer)));
    let pinned = tried.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
    pinned.map(|()| chosen).map_err(|error| error.to_string())
}

/// Returns the placement for benchmarks that do not ask for one: different cores, or unpinned where that fails.
pub(crate) fn default_placement() -> Placement {
    if processors(Placement::Other).is_ok() { Placement::Other } else { Placement::None }
}

/// Returns the processors of that placement.
pub(crate) fn default_processors() -> Processors {
    processors(default_placement()).unwrap_or_default()
}

/// Returns the reason why reader and writer cannot be on different cores.
pub(crate) fn reason_not_pinned() -> Option<String> {
    processors(Placement::Other).err()
}

/// Pins this thread to a processor; does nothing for `None`.
pub(crate) fn pin(processor: Option<usize>) -> io::Result<()> {
    let Some(processor) = processor else { return Ok(()) };
    cpu::pin_this_thread(processor).map_err(|error| {
        let words = format!("cannot pin a thread to processor {processor}: {error}");
        io::Error::new(error.kind(), words)
    })
}

/// Chooses among the allowed processors.
fn choose(
    placement: Placement,
    allowed: &[usize],
    same_core: impl Fn(usize) -> Option<Vec<usize>>,
) -> Result<Processors, &'static str> {
    let Some(&writer) = allowed.first() else {
        return if placement == Placement::None {
            Ok(Processors::default())
        } else {
            Err("this system cannot pin threads to processors")
        };
    };
    let core = same_core(writer);
    let in_core = |processor: &usize| core.as_ref().is_some_and(|core| core.contains(processor));
    let others = || allowed.iter().copied().filter(|processor| *processor != writer);
    let reader = match placement {
        Placement::None => return Ok(Processors::default()),
        Placement::Same => Some(writer),
        Placement::Sibling => others().find(in_core),
        Placement::Other => others().find(|processor| !in_core(processor)),
    };
    match reader {
        Some(reader) => Ok(Processors { reader: Some(reader), writer: Some(writer) }),
        None if placement == Placement::Sibling => Err("no available core has two processors"),
        None if allowed.len() == 1 => Err("only one processor is available"),
        None => Err("only one core is available"),
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
        let choose_pair = |placement: Placement, allowed: &[usize]| {
            choose(placement, allowed, pairs).map(|it| (it.writer, it.reader))
        };
        assert_eq!(choose_pair(Placement::Other, &[2, 3, 4, 5]), Ok((Some(2), Some(4))));
        assert_eq!(choose_pair(Placement::Sibling, &[2, 3, 4, 5]), Ok((Some(2), Some(3))));
        assert_eq!(choose_pair(Placement::Same, &[2, 3]), Ok((Some(2), Some(2))));
        assert_eq!(choose_pair(Placement::None, &[2, 3]), Ok((None, None)));
        assert_eq!(choose_pair(Placement::Other, &[3]), Err("only one processor is available"));
        assert_eq!(choose_pair(Placement::Other, &[2, 3]), Err("only one core is available"));
        assert!(choose_pair(Placement::Sibling, &[3, 4]).is_err());
        // macOS.
        assert_eq!(choose_pair(Placement::None, &[]), Ok((None, None)));
        assert!(choose_pair(Placement::Same, &[]).is_err());
        // Where the cores are unknown, each processor counts as one.
        let unknown = choose(Placement::Other, &[0, 1], |_| None);
        assert_eq!(unknown, Ok(Processors { reader: Some(1), writer: Some(0) }));
    }
}
