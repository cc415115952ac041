//! One stream of an attempt: tagged, and stored or passed on line by line.

use std::io;
use std::mem;

use pipewright::Source;

use super::content::Content;
use super::options::{OutputMode, OutputOptions};
use super::shared::Shared;
use super::tagger::Tagger;

/// One stream of an attempt.
#[derive(Debug)]
pub(super) struct Stream {
    source: Source,
    shared: Shared,
    mode: OutputMode,
    tagger: Option<Tagger>,
    /// True if lines are printed as they arrive. False: it is not the turn of this job, or jobs are printed whole.
    is_live: bool,
    /// The output that is not printed yet. Line by line: the lines of a job that waits for its turn.
    stored: Content,
    /// Line by line: the line that has not ended.
    line: Content,
    /// True if the last byte is no line end.
    is_in_line: bool,
    /// True if no more bytes are taken: the rest is lost, or the attempt has ended.
    is_closed: bool,
}

impl Stream {
    pub(super) fn new(
        source: Source,
        shared: &Shared,
        options: &OutputOptions,
        tag: &str,
    ) -> Stream {
        Stream {
            source,
            shared: shared.clone(),
            mode: options.mode,
            tagger: options.tag.then(|| Tagger::new(tag)),
            is_live: false,
            stored: shared.content(),
            line: shared.content(),
            is_in_line: false,
            is_closed: options.mode == OutputMode::Discard,
        }
    }

    /// Takes bytes.
    ///
    /// # Errors
    /// The temporary file cannot take them. The rest of the stream is lost, and nothing more is taken.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.is_closed || self.shared.queue.discards(self.source) {
            return Ok(());
        }
        let mut tagger = self.tagger.take();
        let written = match &mut tagger {
            Some(tagger) => tagger.tag(bytes, |tagged| self.print(tagged)),
            None => self.print(bytes),
        };
        self.tagger = tagger;
        self.is_in_line = !bytes.ends_with(b"\n");
        if written.is_err() {
            // The line of another job must not follow the part of a line. The queue ends a line that it cuts.
            self.is_in_line = !self.is_live || !self.line.is_empty();
            self.end();
        }
        written
    }

    fn print(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.mode != OutputMode::LineBuffer {
            return self.stored.push(bytes);
        }
        let lines = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let (lines, rest) = bytes.split_at_checked(lines).unwrap_or_default();
        if !lines.is_empty() {
            let line = (!self.line.is_empty())
                .then(|| mem::replace(&mut self.line, self.shared.content()));
            if self.is_live {
                self.shared.queue.push_lines(self.source, line, lines)?;
            } else {
                if let Some(mut line) = line {
                    self.stored.append(&mut line)?;
                }
                self.stored.push(lines)?;
            }
        }
        self.line.push(rest)
    }

    /// Prints the stored lines, and the later ones as they arrive.
    pub(super) fn go_live(&mut self) {
        if self.mode == OutputMode::LineBuffer && !mem::replace(&mut self.is_live, true) {
            let stored = mem::replace(&mut self.stored, self.shared.content());
            self.shared.queue.push(self.source, stored);
        }
    }

    /// Ends the last line if lines matter, and takes no more bytes.
    pub(super) fn end(&mut self) {
        if mem::replace(&mut self.is_closed, true) || !self.is_in_line {
            return;
        }
        if self.mode == OutputMode::LineBuffer {
            self.line.end_line();
            if self.is_live {
                let line = mem::replace(&mut self.line, self.shared.content());
                self.shared.queue.push(self.source, line);
            }
        } else if self.tagger.is_some() {
            self.stored.end_line();
        }
    }

    /// Takes what is stored, in order, as small as it can be.
    pub(super) fn take_stored(&mut self) -> impl Iterator<Item = (Source, Content)> {
        let source = self.source;
        let contents = [&mut self.stored, &mut self.line]
            .map(|content| mem::replace(content, self.shared.content()));
        let is_plentiful = self.shared.memory.is_plentiful();
        contents.into_iter().filter(|content| !content.is_empty()).map(move |mut content| {
            // An error is ignored: the content is complete, and stays in memory, where it is counted.
            let _ = content.finish(is_plentiful);
            (source, content)
        })
    }
}
