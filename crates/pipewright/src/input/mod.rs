//! Input given to a command: fed by a run, or in the background from the start of the child on.

mod background;
mod feed;

pub(crate) use background::{FedInput, Input};
pub(crate) use feed::{Feed, Owner};
