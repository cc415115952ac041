//! The machine: its description, its processors and the CPU time that other processes use.

mod cpu_use;
mod info;
mod placement;

pub use cpu_use::CpuUse;
pub use info::{HostReport, look};

pub(crate) use placement::{Processors, default_placement, default_processors, pin, processors};
