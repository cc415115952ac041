//! Bytes as a value: one piece, where serde takes a vector for a sequence of numbers.

use std::fmt;
use std::ops::{Deref, DerefMut};

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes that are serialized in one piece, in a structure or as an item of a stream.
///
/// As an argument or a return value they are the same as a `Vec<u8>`, which is not serialized there: see
/// [the module](super#bytes).
///
/// ```
/// use pipewright_ipc::service::Bytes;
/// let bytes = Bytes(vec![1, 2, 3]);
/// assert_eq!(bytes.len(), 3);
/// assert_eq!(Vec::from(bytes), [1, 2, 3]);
/// ```
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub Vec<u8>);

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes(bytes)
    }
}

impl From<Bytes> for Vec<u8> {
    fn from(bytes: Bytes) -> Vec<u8> {
        bytes.0
    }
}

impl Deref for Bytes {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({})", self.0.len())
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_owned()))
            }

            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Bytes, E> {
                Ok(Bytes(bytes))
            }

            // As formats write them that have no bytes, such as JSON.
            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Bytes, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = parts.next_element()? {
                    bytes.push(byte);
                }
                Ok(Bytes(bytes))
            }
        }

        from.deserialize_byte_buf(Collect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    #[test]
    fn bytes_are_one_piece_of_a_value() {
        let value = (7_u8, Bytes(vec![1; 300]), "after".to_owned());
        let bytes = codec::encode(&value).unwrap();
        // The same bytes as those of a vector, so that a type can change.
        assert_eq!(bytes, codec::encode(&(7_u8, vec![1_u8; 300], "after")).unwrap());
        assert_eq!(codec::decode::<(u8, Bytes, String)>(&bytes).unwrap(), value);
        assert!(codec::decode::<Bytes>(&[200, 1]).is_err(), "fewer bytes than it says");
    }
}
