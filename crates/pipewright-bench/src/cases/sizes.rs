//! The block sizes of IBM's article of 2001, and the check of sizes that a user gives.

use crate::Error;

/// The block sizes of the article's `pipespeed` scripts.
#[rustfmt::skip]
pub(super) const IBM_2001: [usize; 62] = [
    1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 72, 80, 88, 96,
    104, 112, 120, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320, 352, 384, 416, 448, 480, 512,
    576, 640, 704, 768, 832, 896, 960, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096,
];

/// The largest block: both sides keep one in memory, and two if they verify.
const MOST_BLOCK_BYTES: usize = 256 << 20;

/// Returns the sizes sorted and without duplicates, or an error for a size that is not possible.
pub(crate) fn checked(mut blocks: Vec<usize>) -> Result<Vec<usize>, Error> {
    blocks.sort_unstable();
    blocks.dedup();
    let refuse = |problem: &str| Error::Option {
        option: "--blocks".to_owned(),
        problem: problem.to_owned(),
    };
    if blocks.first() == Some(&0) {
        return Err(refuse("a block must have at least 1 byte"));
    }
    if blocks.last().is_some_and(|block| *block > MOST_BLOCK_BYTES) {
        return Err(refuse("a block must have at most 256 MiB"));
    }
    Ok(blocks)
}
