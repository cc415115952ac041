//! Values as bytes: postcard, with a bound on the depth of values.
//!
//! A deeply nested value of a recursive type is short on the wire, and overflows the stack of the process that reads or
//! writes it: five megabytes of one byte are enough. So both directions count the levels.

use std::cell::Cell;
use std::fmt;

use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use serde::ser::{
    self, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant,
};
use serde::{Serialize, Serializer};

use crate::error::{Error, ErrorKind};

/// The most levels of a value: each struct, tuple, sequence, map, enum, option and newtype in another one is a level. A
/// level takes up to three kilobytes of stack without optimizations.
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

// A serializer that counts the levels of the value.

/// A value, serializer or writer of parts, with the levels that are left below it.
struct Writing<'a, T> {
    value: T,
    levels: Levels<'a>,
}

impl<'a, T> Writing<'a, T> {
    /// Returns the levels below the next one.
    #[inline]
    fn below<E: ser::Error>(&self) -> Result<Levels<'a>, E> {
        self.levels.enter().ok_or_else(|| E::custom(TOO_DEEP))
    }
}

impl<T: Serialize + ?Sized> Serialize for Writing<'_, &T> {
    #[inline]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(Writing { value: serializer, levels: self.levels })
    }
}

/// Forwards the methods of values without parts.
macro_rules! write_flat {
    ($($method:ident($($name:ident: $type:ty),*))+) => {
        $(
            #[inline]
            fn $method(self, $($name: $type),*) -> Result<S::Ok, S::Error> {
                self.value.$method($($name),*)
            }
        )+
    };
}

/// Forwards the methods that begin values with parts.
macro_rules! write_nested {
    ($($method:ident -> $writer:ident($($name:ident: $type:ty),*))+) => {
        $(
            #[inline]
            fn $method(self, $($name: $type),*) -> Result<Self::$writer, S::Error> {
                let levels = self.below()?;
                Ok(Writing { value: self.value.$method($($name),*)?, levels })
            }
        )+
    };
}

impl<'a, S: Serializer> Serializer for Writing<'a, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Writing<'a, S::SerializeSeq>;
    type SerializeTuple = Writing<'a, S::SerializeTuple>;
    type SerializeTupleStruct = Writing<'a, S::SerializeTupleStruct>;
    type SerializeTupleVariant = Writing<'a, S::SerializeTupleVariant>;
    type SerializeMap = Writing<'a, S::SerializeMap>;
    type SerializeStruct = Writing<'a, S::SerializeStruct>;
    type SerializeStructVariant = Writing<'a, S::SerializeStructVariant>;

    write_flat! {
        serialize_bool(value: bool)
        serialize_i8(value: i8)
        serialize_i16(value: i16)
        serialize_i32(value: i32)
        serialize_i64(value: i64)
        serialize_i128(value: i128)
        serialize_u8(value: u8)
        serialize_u16(value: u16)
        serialize_u32(value: u32)
        serialize_u64(value: u64)
        serialize_u128(value: u128)
        serialize_f32(value: f32)
        serialize_f64(value: f64)
        serialize_char(value: char)
        serialize_str(value: &str)
        serialize_bytes(value: &[u8])
        serialize_none()
        serialize_unit()
        serialize_unit_struct(name: &'static str)
        serialize_unit_variant(name: &'static str, number: u32, variant: &'static str)
    }

    write_nested! {
        serialize_seq -> SerializeSeq(length: Option<usize>)
        serialize_tuple -> SerializeTuple(length: usize)
        serialize_tuple_struct -> SerializeTupleStruct(name: &'static str, length: usize)
        serialize_tuple_variant -> SerializeTupleVariant(
            name: &'static str, number: u32, variant: &'static str, length: usize
        )
        serialize_map -> SerializeMap(length: Option<usize>)
        serialize_struct -> SerializeStruct(name: &'static str, length: usize)
        serialize_struct_variant -> SerializeStructVariant(
            name: &'static str, number: u32, variant: &'static str, length: usize
        )
    }

    #[inline]
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        let levels = self.below()?;
        self.value.serialize_some(&Writing { value, levels })
    }

    #[inline]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let levels = self.below()?;
        self.value.serialize_newtype_struct(name, &Writing { value, levels })
    }

    #[inline]
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        number: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let levels = self.below()?;
        self.value.serialize_newtype_variant(name, number, variant, &Writing { value, levels })
    }

    fn collect_str<T: std::fmt::Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.value.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.value.is_human_readable()
    }
}

/// Forwards the writers of parts.
macro_rules! write_parts {
    ($($trait:ident: $method:ident($($name:ident: $type:ty),*);)+) => {
        $(
            impl<W: $trait> $trait for Writing<'_, W> {
                type Ok = W::Ok;
                type Error = W::Error;

                #[inline]
                fn $method<T: Serialize + ?Sized>(
                    &mut self,
                    $($name: $type,)*
                    value: &T,
                ) -> Result<(), W::Error> {
                    let levels = self.levels;
                    self.value.$method($($name,)* &Writing { value, levels })
                }

                #[inline]
                fn end(self) -> Result<W::Ok, W::Error> {
                    self.value.end()
                }
            }
        )+
    };
}

write_parts! {
    SerializeSeq: serialize_element();
    SerializeTuple: serialize_element();
    SerializeTupleStruct: serialize_field();
    SerializeTupleVariant: serialize_field();
    SerializeStruct: serialize_field(key: &'static str);
    SerializeStructVariant: serialize_field(key: &'static str);
}

impl<W: SerializeMap> SerializeMap for Writing<'_, W> {
    type Ok = W::Ok;
    type Error = W::Error;

    #[inline]
    fn serialize_key<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), W::Error> {
        let levels = self.levels;
        self.value.serialize_key(&Writing { value, levels })
    }

    #[inline]
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), W::Error> {
        let levels = self.levels;
        self.value.serialize_value(&Writing { value, levels })
    }

    #[inline]
    fn end(self) -> Result<W::Ok, W::Error> {
        self.value.end()
    }
}

// A deserializer that counts the levels of the value.

/// A deserializer, visitor, seed or access to parts, with the levels that are left below it.
struct Reading<'a, T> {
    from: T,
    levels: Levels<'a>,
}

impl<'a, T> Reading<'a, T> {
    fn with<U>(&self, from: U) -> Reading<'a, U> {
        Reading { from, levels: self.levels }
    }

    /// Returns a visitor of the next level.
    #[inline]
    fn below<V, E: de::Error>(&self, visitor: V) -> Result<Reading<'a, V>, E> {
        let levels = self.levels.enter().ok_or_else(|| E::custom(TOO_DEEP))?;
        Ok(Reading { from: visitor, levels })
    }
}

/// Forwards the methods of values without parts.
macro_rules! read_flat {
    ($($method:ident)+) => {
        $(
            #[inline]
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
                self.from.$method(visitor)
            }
        )+
    };
}

/// Forwards the methods of values with parts.
macro_rules! read_nested {
    ($($method:ident($($name:ident: $type:ty),*))+) => {
        $(
            #[inline]
            fn $method<V: Visitor<'de>>(
                self,
                $($name: $type,)*
                visitor: V,
            ) -> Result<V::Value, D::Error> {
                let visitor = self.below(visitor)?;
                self.from.$method($($name,)* visitor)
            }
        )+
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Reading<'_, D> {
    type Error = D::Error;

    read_flat! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128 deserialize_u8
        deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
        deserialize_char
        deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_unit
        deserialize_identifier
    }

    read_nested! {
        deserialize_any()
        deserialize_ignored_any()
        deserialize_option()
        deserialize_newtype_struct(name: &'static str)
        deserialize_seq()
        deserialize_tuple(length: usize)
        deserialize_tuple_struct(name: &'static str, length: usize)
        deserialize_map()
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
    }

    #[inline]
    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.from.deserialize_unit_struct(name, visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.from.is_human_readable()
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Reading<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.from.expecting(f)
    }

    #[inline]
    fn visit_none<E: de::Error>(self) -> Result<V::Value, E> {
        self.from.visit_none()
    }

    #[inline]
    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        let from = self.with(from);
        self.from.visit_some(from)
    }

    #[inline]
    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        let from = self.with(from);
        self.from.visit_newtype_struct(from)
    }

    #[inline]
    fn visit_seq<A: SeqAccess<'de>>(self, parts: A) -> Result<V::Value, A::Error> {
        let parts = self.with(parts);
        self.from.visit_seq(parts)
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, parts: A) -> Result<V::Value, A::Error> {
        let parts = self.with(parts);
        self.from.visit_map(parts)
    }

    #[inline]
    fn visit_enum<A: EnumAccess<'de>>(self, parts: A) -> Result<V::Value, A::Error> {
        let parts = self.with(parts);
        self.from.visit_enum(parts)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Reading<'_, S> {
    type Value = S::Value;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<S::Value, D::Error> {
        let from = self.with(from);
        self.from.deserialize(from)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Reading<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let seed = self.with(seed);
        self.from.next_element_seed(seed)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.from.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Reading<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let seed = self.with(seed);
        self.from.next_key_seed(seed)
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.with(seed);
        self.from.next_value_seed(seed)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.from.size_hint()
    }
}

impl<'a, 'de, A: EnumAccess<'de>> EnumAccess<'de> for Reading<'a, A> {
    type Error = A::Error;
    type Variant = Reading<'a, A::Variant>;

    #[inline]
    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), A::Error> {
        let levels = self.levels;
        let (value, from) = self.from.variant_seed(seed)?;
        Ok((value, Reading { from, levels }))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Reading<'_, A> {
    type Error = A::Error;

    #[inline]
    fn unit_variant(self) -> Result<(), A::Error> {
        self.from.unit_variant()
    }

    #[inline]
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.with(seed);
        self.from.newtype_variant_seed(seed)
    }

    #[inline]
    fn tuple_variant<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = self.with(visitor);
        self.from.tuple_variant(length, visitor)
    }

    #[inline]
    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = self.with(visitor);
        self.from.struct_variant(fields, visitor)
    }
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
