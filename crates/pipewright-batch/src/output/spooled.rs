//! The whole output of one command, which is shown later: in memory up to 8 MiB, and beyond that in a temporary file.

use std::io;
use std::sync::Arc;

use super::content::Content;
use super::content::Memory;
use super::spool::{self, OpenSpool, Spool};

/// The most bytes that are kept in memory.
const IN_MEMORY_BYTES: usize = 8 << 20;

/// The output of one stream, for the tool.
#[derive(Debug)]
pub struct Spooled(Content);

impl Default for Spooled {
    fn default() -> Spooled {
        Spooled::with(IN_MEMORY_BYTES, Arc::new(spool::open_temporary_file))
    }
}

impl Spooled {
    fn with(in_memory_bytes: usize, open: OpenSpool) -> Spooled {
        let (memory, spool) = (Memory::new(in_memory_bytes), Spool::new(open));
        Spooled(Content::of_size(&memory, &spool, in_memory_bytes))
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// The temporary file cannot take them. What was added before stays.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.push(bytes)
    }

    /// Calls `work` with all bytes in pieces, and keeps them.
    ///
    /// # Errors
    /// The temporary file cannot be read back, or that of the function.
    pub fn read(&self, work: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        self.0.read(work)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn what_memory_may_not_hold_is_in_the_file_and_all_of_it_is_read_in_order() {
        static OPENED: AtomicU32 = AtomicU32::new(0);
        let open = || {
            OPENED.fetch_add(1, Ordering::Relaxed);
            spool::open_temporary_file()
        };
        let most = 10_000;
        let mut spooled = Spooled::with(most, Arc::new(open));
        let mut wanted = Vec::new();
        for piece in 0..300_u32 {
            let bytes = vec![piece as u8; 1 + (piece as usize * 37) % 1500];
            assert_eq!(OPENED.load(Ordering::Relaxed) > 0, wanted.len() > most);
            spooled.push(&bytes).unwrap();
            wanted.extend(bytes);
            assert!(spooled.0.in_memory_bytes() <= most);
        }
        for _ in 0..2 {
            let mut read = Vec::new();
            let mut add = |bytes: &[u8]| {
                read.extend_from_slice(bytes);
                Ok(())
            };
            spooled.read(&mut add).unwrap();
            assert!(read == wanted);
        }
        assert_eq!(OPENED.load(Ordering::Relaxed), 1);
    }
}
