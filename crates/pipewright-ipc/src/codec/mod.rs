//! Values as bytes: postcard, with a bound on the depth of values.
//!
//! A value of a recursive type that nests deeply is short on the wire, and takes the stack of whoever reads or writes it: five
//! megabytes of one byte would end the process. So both directions count the levels.

mod reading;
mod writing;

use std::cell::Cell;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind};
use reading::Reading;
use writing::Writing;

/// The most levels of a value: each struct, tuple, sequence, map, enum, option and newtype in another one is a level. A level
/// takes up to three kilobytes of stack without optimizations.
const MAX_LEVELS: u32 = 256;

/// The levels that are left below a value.
#[derive(Clone, Copy)]
struct Levels<'a> {
    left: u32,
    /// A value had more.
    exceeded: &'a Cell<bool>,
}

impl<'a> Levels<'a> {
    fn new(exceeded: &'a Cell<bool>) -> Levels<'a> {
        Levels { left: MAX_LEVELS, exceeded }
    }

    /// Enters a level. `None`: there are too many.
    #[inline]
    fn enter(self) -> Option<Levels<'a>> {
        let left = self.left.checked_sub(1);
        if left.is_none() {
            self.exceeded.set(true);
        }
        left.map(|left| Levels { left, ..self })
    }
}

/// The text inside of the serializer. [`error`] replaces it.
const TOO_DEEP: &str = "the value has too many levels";

fn error(error: postcard::Error, exceeded: &Cell<bool>) -> Error {
    if exceeded.get() {
        let text = format!("the value has more than {MAX_LEVELS} levels");
        return Error::caused(ErrorKind::Codec, std::io::Error::other(text));
    }
    Error::codec(error)
}

/// Returns the bytes of a value.
pub(crate) fn encode(value: &(impl Serialize + ?Sized)) -> Result<Vec<u8>, Error> {
    encode_into(value, Vec::new())
}

/// Appends the bytes of a value.
pub(crate) fn encode_into(
    value: &(impl Serialize + ?Sized),
    buffer: Vec<u8>,
) -> Result<Vec<u8>, Error> {
    let exceeded = Cell::new(false);
    let value = Writing { value, levels: Levels::new(&exceeded) };
    postcard::to_extend(&value, buffer).map_err(|it| error(it, &exceeded))
}

/// Returns a value from the start of the bytes, and the others.
pub(crate) fn decode_first<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8]), Error> {
    let exceeded = Cell::new(false);
    let mut from = postcard::Deserializer::from_bytes(bytes);
    let value = T::deserialize(Reading { from: &mut from, levels: Levels::new(&exceeded) });
    value.and_then(|value| Ok((value, from.finalize()?))).map_err(|it| error(it, &exceeded))
}

/// Returns a value from the start of the bytes.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    decode_first(bytes).map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    /// Recursive in all ways.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    enum Tree {
        Leaf,
        Newtype(Box<Tree>),
        Tuple(u8, Box<Tree>),
        Struct { below: Box<Tree> },
        Option(Option<Box<Tree>>),
        Many(Vec<Tree>),
        Map(BTreeMap<u8, Tree>),
        Pair((Box<Tree>, u8)),
        Unit(Box<Unit>),
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Unit(Tree);

    type Wrap = fn(Box<Tree>) -> Tree;

    const WRAPS: [Wrap; 8] = [
        Tree::Newtype,
        |it| Tree::Tuple(1, it),
        |below| Tree::Struct { below },
        |it| Tree::Option(Some(it)),
        |it| Tree::Many(vec![*it]),
        |it| Tree::Map(BTreeMap::from([(3, *it)])),
        |it| Tree::Pair((it, 2)),
        |it| Tree::Unit(Box::new(Unit(*it))),
    ];

    fn nested(wrap: Wrap, times: usize) -> Tree {
        (0..times).fold(Tree::Leaf, |tree, _| wrap(Box::new(tree)))
    }

    fn is_too_deep<T: std::fmt::Debug>(result: Result<T, Error>) -> bool {
        result.is_err_and(|error| error.to_string().contains("more than 256 levels"))
    }

    #[test]
    fn a_value_that_nests_too_deeply_is_an_error_in_both_directions() {
        for wrap in WRAPS {
            let tree = nested(wrap, 80);
            let bytes = encode(&tree).unwrap();
            assert_eq!(bytes, postcard::to_stdvec(&tree).unwrap());
            assert_eq!(decode::<Tree>(&bytes).unwrap(), tree);
            let deep = nested(wrap, 300);
            assert!(is_too_deep(encode(&deep)), "{deep:?}");
            assert!(is_too_deep(decode::<Tree>(&postcard::to_stdvec(&deep).unwrap())));
        }
        // Each of these bytes is one level, of different types: 5 MB of them overflowed the stack.
        for byte in 0..=8 {
            assert!(decode::<Tree>(&vec![byte; 5 << 20]).is_ok() == (byte == 0), "{byte}");
        }
        assert!(is_too_deep(decode::<Tree>(&vec![1; 5 << 20])));
    }

    proptest! {
        #[test]
        fn values_have_the_bytes_of_postcard(
            value: (u8, i64, Option<String>, Vec<(char, i16)>, Result<(), u128>, [u16; 3], bool)
        ) {
            let bytes = encode(&value).unwrap();
            prop_assert_eq!(&bytes, &postcard::to_stdvec(&value).unwrap());
            let (again, rest) = decode_first(&bytes).unwrap();
            prop_assert!(rest.is_empty());
            prop_assert_eq!(value, again);
        }
    }
}
