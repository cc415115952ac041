//! One HTML page about a whole batch.

#[derive(Debug)]
pub(crate) struct PageModel;
