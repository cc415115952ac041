//! The encoding of a job's identity: the bytes that are hashed.

use sha2::{Digest, Sha256};

use super::template::Piece;
use super::{Job, JobCommand, JobStdin};

/// The version of the encoding. A change of the encoding changes every identity, so that a log of an older version
/// would know no job: raise this, and keep the older encoding for older logs.
const VERSION: u8 = 1;

/// Feeds a hash with the parts of a job. Each part begins with a tag, and each text with its length, so that no two
/// different jobs give the same bytes.
struct Encoder {
    hash: Sha256,
    /// A run of text that the next piece may continue: `a{}` with the value `b` is the word `ab`.
    run: Vec<u8>,
}

/// Returns the hash of all that makes a job another job: its words, directory, environment and input.
///
/// `{#}` and `{%}` count as themselves, so that neither the position of a job nor its slot are in its hash.
pub(super) fn hash(job: &Job) -> [u8; 32] {
    let mut encoder = Encoder { hash: Sha256::new(), run: Vec::new() };
    encoder.text(b"pipewright batch job");
    encoder.tag(VERSION);
    encoder.command(job);
    let settings = job.settings();
    encoder.tag(b'd');
    encoder.optional(settings.current_dir.as_ref().map(|dir| dir.as_os_str().as_encoded_bytes()));
    encoder.tag(b'e');
    encoder.number(settings.env.len());
    for (name, value) in &settings.env {
        encoder.text(name.as_encoded_bytes());
        encoder.optional(value.as_ref().map(|value| value.as_encoded_bytes()));
    }
    match &settings.stdin {
        JobStdin::Null => encoder.tag(b'n'),
        JobStdin::Bytes(bytes) => {
            encoder.tag(b'b');
            encoder.text(bytes);
        }
        JobStdin::File(path) => {
            encoder.tag(b'f');
            encoder.text(path.as_os_str().as_encoded_bytes());
        }
    }
    encoder.hash.finalize().into()
}

impl Encoder {
    fn command(&mut self, job: &Job) {
        let mut piece = |piece: Piece<'_>| match piece {
            Piece::Bytes(bytes) => self.run.extend_from_slice(bytes),
            Piece::Number => self.marker(b'#'),
            Piece::Slot => self.marker(b'%'),
            Piece::EndOfWord => self.marker(b'.'),
        };
        let (is_shell, first) = match &job.command {
            JobCommand::Program(program) => (false, Some(program)),
            JobCommand::Shell(line) => (true, Some(line)),
            JobCommand::Template { template, record, .. } => {
                template.pieces(record, &mut piece);
                (false, None)
            }
        };
        for word in first.into_iter().chain(&job.args) {
            piece(Piece::Bytes(word.as_encoded_bytes()));
            piece(Piece::EndOfWord);
        }
        self.tag(if is_shell { b's' } else { b'w' });
    }

    /// Ends a run of text, if there is one, and adds the mark of what follows it.
    fn marker(&mut self, tag: u8) {
        let run = std::mem::take(&mut self.run);
        if !run.is_empty() {
            self.tag(b't');
            self.text(&run);
        }
        self.tag(tag);
        self.run = run;
        self.run.clear();
    }

    fn tag(&mut self, tag: u8) {
        self.hash.update([tag]);
    }

    fn number(&mut self, number: usize) {
        self.hash.update((number as u64).to_le_bytes());
    }

    fn text(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.hash.update(bytes);
    }

    fn optional(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            None => self.tag(0),
            Some(bytes) => {
                self.tag(1);
                self.text(bytes);
            }
        }
    }
}
