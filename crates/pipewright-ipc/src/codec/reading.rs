//! A deserializer that counts the levels of the value.

use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use super::{Levels, TOO_DEEP};

/// A deserializer, visitor, seed or access to parts, with the levels that are left below it.
pub(super) struct Reading<'a, T> {
    pub(super) from: T,
    pub(super) levels: Levels<'a>,
}

impl<'a, T> Reading<'a, T> {
    fn with<U>(&self, from: U) -> Reading<'a, U> {
        Reading { from, levels: self.levels }
    }

    /// Returns a visitor of the next level.
    #[inline]
    fn below<V, E: Error>(&self, visitor: V) -> Result<Reading<'a, V>, E> {
        let levels = self.levels.enter().ok_or_else(|| E::custom(TOO_DEEP))?;
        Ok(Reading { from: visitor, levels })
    }
}

/// Forwards the methods of values without parts.
macro_rules! flat {
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
macro_rules! nested {
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

    flat! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128 deserialize_u8
        deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64 deserialize_char
        deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_unit deserialize_identifier
    }

    nested! {
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
    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
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
