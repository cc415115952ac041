//! The secret of a batch: only sides that know it make the same keys for a connection.

use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use hmac::{Hmac, Mac};
use pipewright_os::base::memory::UndumpedBytes;
use sha2::Sha256;
use zeroize::Zeroizing;

use super::error::RemoteError;

/// The number of bytes of a secret.
const SECRET_BYTES: usize = 32;

/// The number of bytes of a key.
pub(crate) const KEY_BYTES: usize = 32;

/// A random secret, which is in no core file, and overwritten when it is dropped.
pub(crate) struct Secret(UndumpedBytes);

impl Secret {
    /// Returns a new secret.
    ///
    /// # Errors
    /// The system has no random bytes, or no memory.
    pub(crate) fn random() -> io::Result<Secret> {
        let mut secret = Secret(UndumpedBytes::zeroed(SECRET_BYTES)?);
        getrandom::fill(&mut secret.0).map_err(io::Error::other)?;
        Ok(secret)
    }

    /// Returns the secret as hexadecimal digits.
    pub(crate) fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(2 * SECRET_BYTES));
        for byte in &*self.0 {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
            }
        }
        text
    }

    /// Reads a secret from a file.
    ///
    /// # Errors
    /// The file cannot be read, or has no secret.
    pub(crate) fn read(path: &Path) -> Result<Secret, RemoteError> {
        let mut text = Zeroizing::new([0; 2 * SECRET_BYTES]);
        let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut *text));
        read.map_err(RemoteError::Secret)?;
        Secret::parse(&*text)
    }

    /// Returns the secret with these hexadecimal digits.
    ///
    /// # Errors
    /// The text is not that of a secret.
    pub(crate) fn parse(text: &[u8]) -> Result<Secret, RemoteError> {
        let bytes = UndumpedBytes::zeroed(SECRET_BYTES).map_err(RemoteError::Secret)?;
        let mut secret = Secret(bytes);
        let digit = |at: usize| char::from(*text.get(at)?).to_digit(16);
        for (at, byte) in secret.0.iter_mut().enumerate() {
            let (Some(high), Some(low)) = (digit(2 * at), digit(2 * at + 1)) else {
                return Err(RemoteError::Secret(io::ErrorKind::InvalidData.into()));
            };
            *byte = u8::try_from(high << 4 | low).unwrap_or(0);
        }
        overwrite_stack();
        match text.len() == 2 * SECRET_BYTES {
            true => Ok(secret),
            false => Err(RemoteError::Secret(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Returns the key for the connection with these bytes, which differ for each.
    pub(crate) fn key_of(&self, connection: &[u8]) -> Zeroizing<[u8; KEY_BYTES]> {
        let key = self.mac(connection);
        overwrite_stack();
        key
    }

    #[inline(never)]
    fn mac(&self, connection: &[u8]) -> Zeroizing<[u8; KEY_BYTES]> {
        // A shorter key than a block of the hash is padded with zeros, by definition of HMAC.
        let mut key = Zeroizing::new([0; 64]);
        key[..SECRET_BYTES].copy_from_slice(&self.0);
        let mut mac = Hmac::<Sha256>::new((&*key).into());
        mac.update(b"pipewright batch key\0");
        mac.update(connection);
        Zeroizing::new(mac.finalize().into_bytes().into())
    }
}

/// Overwrites what functions that have returned left on the stack: the implementation of HMAC copies the key there.
#[inline(never)]
fn overwrite_stack() {
    let mut area = Zeroizing::new([0_u8; 16 << 10]);
    std::hint::black_box(&mut *area);
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_back_from_its_text_and_is_not_printed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let secret = Secret::random().unwrap();
        fs::write(file.path(), &*secret.to_text()).unwrap();
        assert_eq!(*Secret::read(file.path()).unwrap().0, *secret.0);
        assert!(!format!("{secret:?}").contains(&*secret.to_text()));
    }

    #[test]
    fn texts_that_are_no_secret_are_refused() {
        let good = Secret::random().unwrap().to_text();
        assert!(Secret::parse(good.as_bytes()).is_ok());
        let long = format!("{}00", &*good);
        let wrong = good.replacen(|_| true, "g", 1);
        for text in ["", "00", &good[1..], &long, &wrong] {
            assert!(matches!(Secret::parse(text.as_bytes()), Err(RemoteError::Secret(_))));
        }
    }

    #[test]
    fn a_key_is_that_of_its_secret_and_its_connection_only() {
        let (secret, other) = (Secret::random().unwrap(), Secret::random().unwrap());
        let key = secret.key_of(b"a");
        assert_eq!(key, secret.key_of(b"a"));
        assert_ne!(key, secret.key_of(b"b"));
        assert_ne!(key, other.key_of(b"a"));
    }
}
