//! A serializer that counts the levels of the value.

use serde::ser::{
    Error, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant,
};
use serde::{Serialize, Serializer};

use super::{Levels, TOO_DEEP};

/// A value, serializer or writer of parts, with the levels that are left below it.
pub(super) struct Writing<'a, T> {
    pub(super) value: T,
    pub(super) levels: Levels<'a>,
}

impl<'a, T> Writing<'a, T> {
    /// Returns the levels below the next one.
    #[inline]
    fn below<E: Error>(&self) -> Result<Levels<'a>, E> {
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
macro_rules! flat {
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
macro_rules! nested {
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

    flat! {
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

    nested! {
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
macro_rules! parts {
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

parts! {
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
