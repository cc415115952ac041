//! The peers, by name.

mod with_duct;
mod with_pipewright;
mod with_processkit;
mod with_std;
mod with_subprocess;
mod with_tokio;

use std::io::{self, Read};

use crate::request::{ChildCommand, ChildOperation};
use crate::{OperationFn, Result};

/// The size of the buffer for reading a stream.
const READ_BYTES: usize = 64 << 10;

/// Returns the peer's implementation of the operation.
pub(crate) fn prepare(
    peer: &str,
    operation: ChildOperation,
    child: ChildCommand,
) -> Result<OperationFn> {
    let work = match peer {
        "std" => Some(with_std::prepare(operation, child)?),
        "std_pre_exec" => with_std::prepare_with_pre_exec(operation, child),
        "tokio_ct" => Some(with_tokio::prepare(operation, child)?),
        "tokio_mt" => with_tokio::prepare_multi_thread(operation, child)?,
        "duct" => with_duct::prepare(operation, child),
        "subprocess" => with_subprocess::prepare(operation, child),
        "processkit" => with_processkit::prepare(operation, child)?,
        "pipewright" => Some(with_pipewright::prepare(operation, child)?),
        "pipewright_async" => with_pipewright::prepare_async(operation, child)?,
        "pipewright_options" => with_pipewright::prepare_with_options(operation, child, true)?,
        "pipewright_options_same_thread" => {
            with_pipewright::prepare_with_options(operation, child, false)?
        }
        _ => return Err(format!("unknown peer: {peer}").into()),
    };
    work.ok_or_else(|| format!("{peer} does not support {operation:?}").into())
}

/// Reads to the end and returns the number of bytes.
fn count(mut reader: impl Read, buffer: &mut [u8]) -> io::Result<u64> {
    let mut total = 0;
    loop {
        match reader.read(buffer)? {
            0 => return Ok(total),
            count => total += count as u64,
        }
    }
}
