//! The case `size`: compares the sizes of two programs that differ in one `use` line.

use crate::Result;
use crate::prepare::Tools;

pub(crate) fn table(tools: &Tools) -> Result<String> {
    let bytes = |name| std::fs::metadata(tools.binaries.join(name)).map(|file| file.len());
    let (std, pipewright) = (bytes("size-std")?, bytes("size-pipewright")?);
    let more = (pipewright as f64 - std as f64) / 1000.0;
    Ok(format!(
        "\n| program | bytes | kB more than std |\n|---|--:|--:|\n\
         | std | {std} | |\n| pipewright | {pipewright} | {more:.1} |\n"
    ))
}
