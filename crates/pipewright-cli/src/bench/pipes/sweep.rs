//! Which sizes and which ways: those of a preset, or every combination of what was asked for.

use std::io;
use std::thread;
use std::time::Duration;

use pipewright_os::base::cpu;
use pipewright_os::host::test_pipe::Kind;

use super::super::cell::pin;
use super::super::place::{Place, Placement};

use crate::Failure;
use crate::args::{Capacity, PipesPreset, SweepOptions, Topology, Via};

/// The article's sizes: every one that its `pipespeed` scripts had.
#[rustfmt::skip]
pub(in crate::bench) const IBM_2001: [usize; 62] = [
    1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 72, 80, 88, 96,
    104, 112, 120, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320, 352, 384, 416, 448, 480, 512,
    576, 640, 704, 768, 832, 896, 960, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096,
];

const QUICK: [usize; 12] = [
    64,
    256,
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    1 << 20,
];

/// Both sides have one of these in memory, and with `--verify` two.
const MOST_BLOCK_BYTES: usize = 256 << 20;

/// What is measured.
#[derive(Debug)]
pub(super) struct Sweep {
    pub(super) blocks: Vec<usize>,
    pub(super) ways: Vec<Way>,
    /// Ways were asked for, so that nothing else is measured.
    pub(super) is_chosen: bool,
}

/// One way from a writer to a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) topology: Topology,
    pub(super) via: Via,
    /// What it is to hold; `None`: what is usual.
    pub(super) holds_bytes: Option<usize>,
    pub(super) placement: Placement,
}

impl Way {
    fn new(topology: Topology, via: Via, holds_bytes: Option<usize>, placement: Placement) -> Way {
        let way = Way { topology, via, holds_bytes, placement };
        match topology {
            // Its pipe is the library's to choose.
            Topology::Library => Way { via: Via::Pipe, holds_bytes: None, ..way },
            // A worker is a process, and its ring is as large as it is.
            _ if via == Via::Memory => {
                Way { topology: Topology::Processes, holds_bytes: None, ..way }
            }
            // It is in one place, or in none.
            Topology::Thread if placement != Placement::None => {
                Way { placement: Placement::Same, ..way }
            }
            _ => way,
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self.via {
            Via::Pipe => Kind::Pipe,
            Via::Fifo => Kind::Fifo,
            Via::Socket => Kind::Socket,
            // What it is measured beside.
            Via::Memory => Kind::Pipe,
        }
    }
}

/// How often each cell is measured, and for how long.
pub(in crate::bench) fn rules(preset: PipesPreset) -> (u16, Duration) {
    match preset {
        PipesPreset::Quick => (3, Duration::from_millis(50)),
        PipesPreset::Ibm2001 => (3, Duration::from_millis(80)),
        PipesPreset::Full => (5, Duration::from_millis(100)),
    }
}

impl Sweep {
    pub(super) fn of(options: &SweepOptions) -> Result<Sweep, Failure> {
        let blocks = match options.preset {
            _ if !options.blocks.is_empty() => options.blocks.clone(),
            PipesPreset::Quick => QUICK.to_vec(),
            PipesPreset::Ibm2001 => IBM_2001.to_vec(),
            PipesPreset::Full => (0..=22).map(|shift| 1 << shift).collect(),
        };
        let blocks = checked(blocks)?;
        let is_chosen = !(options.topology.is_empty()
            && options.via.is_empty()
            && options.capacity.is_empty()
            && options.pin.is_empty());
        let ways = if is_chosen { combinations(options) } else { preset(options.preset) };
        Ok(Sweep { blocks, ways, is_chosen })
    }
}

/// The sizes in order, each once, if they are such as can be had.
pub(in crate::bench) fn checked(mut blocks: Vec<usize>) -> Result<Vec<usize>, Failure> {
    blocks.sort_unstable();
    blocks.dedup();
    if blocks.first() == Some(&0) {
        return Err(Failure("--blocks: a block has at least one byte".to_owned()));
    }
    if blocks.last().is_some_and(|block| *block > MOST_BLOCK_BYTES) {
        return Err(Failure("--blocks: a block has at most 256 MiB".to_owned()));
    }
    Ok(blocks)
}

/// Every combination of what was asked for.
fn combinations(options: &SweepOptions) -> Vec<Way> {
    fn or<T: Copy>(asked: &[T], usual: T) -> Vec<T> {
        if asked.is_empty() { vec![usual] } else { asked.to_vec() }
    }
    let mut ways = Vec::new();
    for placement in or(&options.pin, usual_placement()) {
        for topology in or(&options.topology, Topology::Threads) {
            for via in or(&options.via, Via::Pipe) {
                for Capacity(holds_bytes) in or(&options.capacity, Capacity(None)) {
                    let way = Way::new(topology, via, holds_bytes, placement);
                    if !ways.contains(&way) {
                        ways.push(way);
                    }
                }
            }
        }
    }
    ways
}

/// Different cores, or no pinning where they cannot be had.
pub(in crate::bench) fn usual_placement() -> Placement {
    if tried(Placement::Other).is_ok() { Placement::Other } else { Placement::None }
}

/// The processors of that placement, if threads can be put there; or why not.
pub(in crate::bench) fn tried(placement: Placement) -> Result<Place, String> {
    let allowed = cpu::allowed().unwrap_or_default();
    let place = placement.place(&allowed, cpu::same_core)?;
    // A filter may refuse the call. Tried on a thread that takes the processor with it when it ends.
    let tried = thread::spawn(move || pin(place.reader).and_then(|()| pin(place.writer)));
    let pinned = tried.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
    pinned.map(|()| place).map_err(|error| error.to_string())
}

fn preset(preset: PipesPreset) -> Vec<Way> {
    const LARGE_BYTES: Option<usize> = Some(1 << 20);
    let usual = usual_placement();
    let way = |topology, via, holds_bytes| Way::new(topology, via, holds_bytes, usual);
    let one = way(Topology::Thread, Via::Pipe, None);
    let two = way(Topology::Threads, Via::Pipe, None);
    match preset {
        PipesPreset::Ibm2001 => vec![one, two],
        PipesPreset::Quick => vec![
            two,
            Way { holds_bytes: LARGE_BYTES, ..two },
            way(Topology::Processes, Via::Pipe, None),
            way(Topology::Library, Via::Pipe, None),
            way(Topology::Threads, Via::Socket, None),
            way(Topology::Processes, Via::Memory, None),
            one,
            Way { holds_bytes: LARGE_BYTES, ..one },
        ],
        PipesPreset::Full => {
            let mut ways = Vec::new();
            let mut placements = vec![usual, Placement::Same, Placement::None];
            placements.dedup();
            placements.retain(|placement| tried(*placement).is_ok());
            for placement in placements {
                let at = |way: Way| Way { placement, ..way };
                ways.extend([at(two), at(Way { holds_bytes: LARGE_BYTES, ..two })]);
                ways.push(at(way(Topology::Threads, Via::Fifo, None)));
                ways.push(at(way(Topology::Threads, Via::Socket, None)));
                ways.push(at(way(Topology::Processes, Via::Pipe, None)));
                ways.push(at(way(Topology::Processes, Via::Memory, None)));
                ways.push(at(way(Topology::Library, Via::Pipe, None)));
            }
            ways.extend([one, Way { holds_bytes: LARGE_BYTES, ..one }]);
            ways
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Typed {
        #[command(flatten)]
        options: SweepOptions,
    }

    fn sweep(words: &[&str]) -> Result<Sweep, String> {
        let words = std::iter::once(&"pipes").chain(words);
        let typed = Typed::try_parse_from(words).map_err(|error| error.to_string())?;
        Sweep::of(&typed.options).map_err(|Failure(words)| words)
    }

    #[test]
    fn the_articles_sizes_are_all_there_and_in_order() {
        let blocks = sweep(&["--preset", "ibm2001"]).unwrap().blocks;
        assert_eq!((blocks.len(), blocks[0], blocks[61]), (62, 1, 4096));
        assert_eq!(blocks, IBM_2001);
    }

    #[test]
    fn what_is_asked_for_is_every_combination_once() {
        let ways =
            sweep(&["--topology", "threads,library", "--capacity", "default,1M", "--pin", "none"]);
        let ways = ways.unwrap().ways;
        let way =
            |topology, holds_bytes| Way::new(topology, Via::Pipe, holds_bytes, Placement::None);
        // The library has its own pipe, whatever is asked of the others.
        let expected = [
            way(Topology::Threads, None),
            way(Topology::Threads, Some(1 << 20)),
            way(Topology::Library, None),
        ];
        assert_eq!(ways, expected);
        let ways = sweep(&["--topology", "thread", "--pin", "same,other"]).unwrap().ways;
        assert_eq!(ways.len(), 1, "one thread is in one place: {ways:?}");
        let args = ["--via", "memory", "--topology", "thread,library", "--capacity", "1M"];
        let ways = sweep(&[&args[..], &["--pin", "none"]].concat()).unwrap().ways;
        let library = way(Topology::Library, None);
        let memory = Way::new(Topology::Processes, Via::Memory, None, Placement::None);
        assert_eq!(ways, [memory, library]);
    }

    #[test]
    fn sizes_are_sorted_and_absurd_ones_refused() {
        assert_eq!(sweep(&["--blocks", "4k,1,4096"]).unwrap().blocks, [1, 4096]);
        for (blocks, words) in [
            ("0", "--blocks: a block has at least one byte"),
            ("1G", "--blocks: a block has at most 256 MiB"),
        ] {
            assert_eq!(sweep(&["--blocks", blocks]).unwrap_err(), words);
        }
        assert!(sweep(&["--blocks", "many"]).is_err());
    }
}
