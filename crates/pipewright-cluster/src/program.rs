//! The program that nodes get a copy of, and that each copy checks when it starts.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::sync::{Mutex, OnceLock, PoisonError};

use sha2::{Digest, Sha256};

/// The file of this process, also after it was replaced, as by a build.
const OWN: &str = "/proc/self/exe";

/// The bytes that are read at once.
const PIECE_BYTES: usize = 64 << 10;

/// The program of this process, for nodes that do not have it.
#[derive(Debug)]
pub(super) struct Program {
    bytes: Vec<u8>,
    /// The hash of the bytes, in hexadecimal digits.
    hash: String,
}

impl Program {
    /// Reads the program of this process.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn own() -> io::Result<Program> {
        let bytes = match fs::read(OWN) {
            Ok(bytes) => bytes,
            Err(_) => fs::read(std::env::current_exe()?)?,
        };
        Ok(Program::new(bytes))
    }

    /// Returns the hash of the program of this process. Its file is read once, by one thread and in pieces: strangers
    /// that connect all at once must not cost its size each.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn own_hash() -> io::Result<&'static str> {
        static HASH: OnceLock<String> = OnceLock::new();
        static READING: Mutex<()> = Mutex::new(());
        let _one =
            HASH.get().is_none().then(|| READING.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(hash) = HASH.get() {
            return Ok(hash);
        }
        let own = File::open(OWN).or_else(|_| File::open(std::env::current_exe()?))?;
        let hash = hash_of(own)?;
        Ok(HASH.get_or_init(|| hash))
    }

    pub(super) fn new(bytes: Vec<u8>) -> Program {
        let hash = text(&Sha256::digest(&bytes));
        Program { bytes, hash }
    }

    /// Returns the hash of the bytes, in hexadecimal digits.
    pub(super) fn hash(&self) -> &str {
        &self.hash
    }

    /// Returns the bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

fn hash_of(mut file: File) -> io::Result<String> {
    let (mut sum, mut piece) = (Sha256::new(), vec![0; PIECE_BYTES]);
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(text(&sum.finalize())),
            Ok(count) => sum.update(piece.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns the first half of a hash as hexadecimal digits.
fn text(hash: &[u8]) -> String {
    hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_the_file_is_that_of_its_bytes() {
        assert_eq!(Program::own_hash().unwrap(), Program::own().unwrap().hash());
    }
}
