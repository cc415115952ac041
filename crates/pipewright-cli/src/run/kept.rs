//! The output that is shown only if the command fails: `--capture` and `--tail`.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pipewright::{Source, Stdio};
use pipewright_batch::Spooled;

/// The output of the current attempt.
#[derive(Debug, Clone, Default)]
pub(super) struct Kept {
    streams: Arc<[Mutex<Stream>; 2]>,
    /// The most bytes of a stream: those of `--limit`.
    most: Option<usize>,
}

#[derive(Debug, Default)]
struct Stream {
    output: Spooled,
    bytes: usize,
    /// The first failure. What came after it is not kept.
    failed: Option<io::Error>,
}

impl Kept {
    pub(super) fn new(most: Option<usize>) -> Kept {
        Kept { most, ..Kept::default() }
    }

    /// Keeps nothing any more: another attempt begins.
    pub(super) fn clear(&self) {
        for source in [Source::Stdout, Source::Stderr] {
            *self.stream(source) = Stream::default();
        }
    }

    /// Returns the destination of a stream.
    pub(super) fn stdio(&self, source: Source) -> Stdio {
        Stdio::tee_with(self.closure(source))
    }

    /// Returns the closure that keeps each chunk.
    pub(super) fn closure(&self, source: Source) -> impl FnMut(&[u8]) + Send + use<> {
        let kept = self.clone();
        move |chunk: &[u8]| {
            let mut stream = kept.stream(source);
            if stream.failed.is_none() {
                let most = kept.most.map_or(usize::MAX, |most| most.saturating_sub(stream.bytes));
                let chunk = chunk.get(..most).unwrap_or(chunk);
                stream.bytes = stream.bytes.saturating_add(chunk.len());
                stream.failed = stream.output.push(chunk).err();
            }
        }
    }

    /// Writes a stream, or its last lines.
    ///
    /// # Errors
    /// It cannot be written, or it is not whole.
    pub(super) fn write(
        &self,
        source: Source,
        lines: Option<u32>,
        to: &mut impl Write,
    ) -> io::Result<()> {
        let mut stream = self.stream(source);
        write_last(&stream.output, lines, to)?;
        stream.failed.take().map_or(Ok(()), Err)
    }

    fn stream(&self, source: Source) -> MutexGuard<'_, Stream> {
        let [stdout, stderr] = &*self.streams;
        let stream = if source == Source::Stdout { stdout } else { stderr };
        // It is consistent between calls.
        stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the last lines, in two passes: the output may be larger than memory.
fn write_last(output: &Spooled, lines: Option<u32>, to: &mut impl Write) -> io::Result<()> {
    let Some(lines) = lines else { return output.read(|bytes| to.write_all(bytes)) };
    if lines == 0 {
        return Ok(());
    }
    let (mut line_feeds, mut last) = (0_u64, 0);
    output.read(|bytes| {
        line_feeds += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        last = bytes.last().copied().unwrap_or(last);
        Ok(())
    })?;
    // The one at the end begins no line.
    let all = line_feeds - u64::from(last == b'\n') + 1;
    let mut skipped = all.saturating_sub(lines.into());
    output.read(|mut bytes| {
        while skipped > 0 {
            let Some(at) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(()) };
            bytes = bytes.get(at + 1..).unwrap_or_default();
            skipped -= 1;
        }
        to.write_all(bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_those_of_tail() {
        for (text, lines, last) in [
            ("a\nb\nc\n", 2, "b\nc\n"),
            ("a\nb\nc", 2, "b\nc"),
            ("a\nb\nc\n", 3, "a\nb\nc\n"),
            ("a\nb\nc\n", 9, "a\nb\nc\n"),
            ("a\nb\n\n", 1, "\n"),
            ("a\nb\n", 0, ""),
            ("\n", 1, "\n"),
            ("", 1, ""),
        ] {
            let (mut output, mut written) = (Spooled::default(), Vec::new());
            output.push(text.as_bytes()).unwrap();
            write_last(&output, Some(lines), &mut written).unwrap();
            assert_eq!(written, last.as_bytes(), "{text:?} {lines}");
        }
    }
}
