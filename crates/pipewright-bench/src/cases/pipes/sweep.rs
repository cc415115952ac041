//! The block sizes and ways to measure: those of a preset, or every combination of the given options.

use std::time::Duration;

use pipewright_os::host::test_pipe::TestPipeKind;

use crate::Error;
use crate::cases::{IBM_2001, checked};
use crate::host::{default_placement, processors};
use crate::options::{PipesOptions, PipesPreset, Placement, Topology, Via};

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

/// The block sizes and ways.
#[derive(Debug)]
pub(super) struct PipesSweep {
    pub(super) blocks: Vec<usize>,
    pub(super) routes: Vec<Route>,
    /// The options name ways, so nothing else is measured.
    pub(super) is_chosen: bool,
}

/// One way from a writer to a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) topology: Topology,
    pub(super) via: Via,
    /// The capacity to ask for; `None`: the system's default.
    pub(super) holds_bytes: Option<usize>,
    pub(super) placement: Placement,
}

impl Route {
    fn new(
        topology: Topology,
        via: Via,
        holds_bytes: Option<usize>,
        placement: Placement,
    ) -> Route {
        let route = Route { topology, via, holds_bytes, placement };
        match topology {
            // The library makes its own pipe.
            Topology::Library => Route { via: Via::Pipe, holds_bytes: None, ..route },
            // A worker is a process, and its ring has a fixed size.
            _ if via == Via::Memory => {
                Route { topology: Topology::Processes, holds_bytes: None, ..route }
            }
            // One thread is on one processor, or not pinned.
            Topology::Thread if placement != Placement::None => {
                Route { placement: Placement::Same, ..route }
            }
            _ => route,
        }
    }

    pub(super) fn kind(&self) -> TestPipeKind {
        match self.via {
            Via::Pipe => TestPipeKind::Pipe,
            Via::Fifo => TestPipeKind::Fifo,
            Via::Socket => TestPipeKind::Socket,
            // Not opened: the worker has its own memory.
            Via::Memory => TestPipeKind::Pipe,
        }
    }
}

/// Returns the number of series and the time for each cell.
pub(crate) fn rules(preset: PipesPreset) -> (u16, Duration) {
    match preset {
        PipesPreset::Quick => (3, Duration::from_millis(50)),
        PipesPreset::Ibm2001 => (3, Duration::from_millis(80)),
        PipesPreset::Full => (5, Duration::from_millis(100)),
    }
}

/// Returns the time for all of it.
pub(crate) fn limit(preset: PipesPreset) -> Duration {
    Duration::from_secs(match preset {
        PipesPreset::Quick => 30,
        PipesPreset::Ibm2001 => 60,
        PipesPreset::Full => 480,
    })
}

/// Returns true if the options name ways, so nothing else is measured.
pub(crate) fn is_chosen(options: &PipesOptions) -> bool {
    !(options.topology.is_empty()
        && options.via.is_empty()
        && options.capacity.is_empty()
        && options.pin.is_empty())
}

impl PipesSweep {
    pub(super) fn of(options: &PipesOptions) -> Result<PipesSweep, Error> {
        let blocks = match options.preset {
            _ if !options.blocks.is_empty() => options.blocks.clone(),
            PipesPreset::Quick => QUICK.to_vec(),
            PipesPreset::Ibm2001 => IBM_2001.to_vec(),
            PipesPreset::Full => (0..=22).map(|shift| 1 << shift).collect(),
        };
        let blocks = checked(blocks)?;
        let is_chosen = is_chosen(options);
        let routes = if is_chosen { combinations(options) } else { preset(options.preset) };
        Ok(PipesSweep { blocks, routes, is_chosen })
    }
}

/// Returns every combination of the given options.
fn combinations(options: &PipesOptions) -> Vec<Route> {
    fn or<T: Copy>(given: &[T], default: T) -> Vec<T> {
        if given.is_empty() { vec![default] } else { given.to_vec() }
    }
    let mut routes = Vec::new();
    for placement in or(&options.pin, default_placement()) {
        for topology in or(&options.topology, Topology::Threads) {
            for via in or(&options.via, Via::Pipe) {
                for holds_bytes in or(&options.capacity, None) {
                    let route = Route::new(topology, via, holds_bytes, placement);
                    if !routes.contains(&route) {
                        routes.push(route);
                    }
                }
            }
        }
    }
    routes
}

fn preset(preset: PipesPreset) -> Vec<Route> {
    const LARGE_BYTES: Option<usize> = Some(1 << 20);
    let default = default_placement();
    let route = |topology, via, holds_bytes| Route::new(topology, via, holds_bytes, default);
    let one = route(Topology::Thread, Via::Pipe, None);
    let two = route(Topology::Threads, Via::Pipe, None);
    match preset {
        PipesPreset::Ibm2001 => vec![one, two],
        PipesPreset::Quick => vec![
            two,
            Route { holds_bytes: LARGE_BYTES, ..two },
            route(Topology::Processes, Via::Pipe, None),
            route(Topology::Library, Via::Pipe, None),
            route(Topology::Threads, Via::Socket, None),
            route(Topology::Processes, Via::Memory, None),
            one,
            Route { holds_bytes: LARGE_BYTES, ..one },
        ],
        PipesPreset::Full => {
            let mut routes = Vec::new();
            let mut placements = vec![default, Placement::Same, Placement::None];
            placements.dedup();
            placements.retain(|placement| processors(*placement).is_ok());
            for placement in placements {
                let at = |route: Route| Route { placement, ..route };
                routes.extend([at(two), at(Route { holds_bytes: LARGE_BYTES, ..two })]);
                routes.push(at(route(Topology::Threads, Via::Fifo, None)));
                routes.push(at(route(Topology::Threads, Via::Socket, None)));
                routes.push(at(route(Topology::Processes, Via::Pipe, None)));
                routes.push(at(route(Topology::Processes, Via::Memory, None)));
                routes.push(at(route(Topology::Library, Via::Pipe, None)));
            }
            routes.extend([one, Route { holds_bytes: LARGE_BYTES, ..one }]);
            routes
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(options: &PipesOptions) -> Result<PipesSweep, String> {
        PipesSweep::of(options).map_err(|error| error.to_string())
    }

    #[test]
    fn the_sizes_of_the_article_are_complete_and_in_order() {
        let options = PipesOptions { preset: PipesPreset::Ibm2001, ..PipesOptions::default() };
        let blocks = sweep(&options).unwrap().blocks;
        assert_eq!((blocks.len(), blocks[0], blocks[61]), (62, 1, 4096));
        assert_eq!(blocks, IBM_2001);
    }

    #[test]
    fn every_combination_of_the_options_is_measured_once() {
        let routes = sweep(&PipesOptions {
            topology: vec![Topology::Threads, Topology::Library],
            capacity: vec![None, Some(1 << 20)],
            pin: vec![Placement::None],
            ..PipesOptions::default()
        });
        let routes = routes.unwrap().routes;
        let route =
            |topology, holds_bytes| Route::new(topology, Via::Pipe, holds_bytes, Placement::None);
        // The library has its own pipe, whatever the other options are.
        let expected = [
            route(Topology::Threads, None),
            route(Topology::Threads, Some(1 << 20)),
            route(Topology::Library, None),
        ];
        assert_eq!(routes, expected);
        let routes = sweep(&PipesOptions {
            topology: vec![Topology::Thread],
            pin: vec![Placement::Same, Placement::Other],
            ..PipesOptions::default()
        });
        let routes = routes.unwrap().routes;
        assert_eq!(routes.len(), 1, "one thread has one placement: {routes:?}");
        let routes = sweep(&PipesOptions {
            topology: vec![Topology::Thread, Topology::Library],
            via: vec![Via::Memory],
            capacity: vec![Some(1 << 20)],
            pin: vec![Placement::None],
            ..PipesOptions::default()
        });
        let library = route(Topology::Library, None);
        let memory = Route::new(Topology::Processes, Via::Memory, None, Placement::None);
        assert_eq!(routes.unwrap().routes, [memory, library]);
    }

    #[test]
    fn sizes_are_sorted_and_impossible_ones_refused() {
        let sized = |blocks: &[usize]| {
            sweep(&PipesOptions { blocks: blocks.to_vec(), ..PipesOptions::default() })
        };
        assert_eq!(sized(&[4096, 1, 4096]).unwrap().blocks, [1, 4096]);
        for (block, words) in [
            (0, "--blocks: a block must have at least 1 byte"),
            (1 << 30, "--blocks: a block must have at most 256 MiB"),
        ] {
            assert_eq!(sized(&[block]).unwrap_err(), words);
        }
    }
}
