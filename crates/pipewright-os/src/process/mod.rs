//! Starting a child, waiting for it, and holding everything that it starts.

pub mod capabilities;
pub mod child;
pub mod contain;
pub mod open;
pub mod spawn;
pub mod status;
pub mod std_process;
pub mod terminal;
pub mod tree;
pub mod usage;
