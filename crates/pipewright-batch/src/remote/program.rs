//! The program that nodes get a copy of, and that each copy checks when it starts.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

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
    pub(super) fn own() -> std::io::Result<Program> {
        // Also after the file was replaced, as by a build.
        let own = Path::new("/proc/self/exe");
        let bytes = match fs::read(own) {
            Ok(bytes) => bytes,
            Err(_) => fs::read(std::env::current_exe()?)?,
        };
        Ok(Program::new(bytes))
    }

    /// Returns the hash of the program of this process. Its file is read once.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn own_hash() -> std::io::Result<&'static str> {
        static HASH: OnceLock<String> = OnceLock::new();
        if let Some(hash) = HASH.get() {
            return Ok(hash);
        }
        let hash = Program::own()?.hash;
        Ok(HASH.get_or_init(|| hash))
    }

    pub(super) fn new(bytes: Vec<u8>) -> Program {
        let hash = Sha256::digest(&bytes);
        let hash = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
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
