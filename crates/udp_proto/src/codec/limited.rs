//! Limits on what any serde format makes of remote bytes.
//!
//! Formats trust lengths: a list of empty values costs no byte and any amount of time, nested
//! values cost a byte each and the stack, and claimed lengths are allocated ahead. Here, every
//! value is charged to a budget before it is created.

use core::cell::Cell;
use core::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use super::{DecodeError, Limits};

/// The remaining limits of one message; for implementations of [`Codec`](super::Codec).
#[derive(Debug)]
pub struct Budget {
    memory: Cell<usize>,
    depth: Cell<u16>,
    reached: Cell<Option<DecodeError>>,
}

impl Budget {
    /// Creates the budget of one message.
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self {
            memory: Cell::new(limits.memory_max),
            depth: Cell::new(limits.depth_max),
            reached: Cell::new(None),
        }
    }

    /// Charges everything that `inner` reads.
    pub const fn limit<T>(&self, inner: T) -> Limited<'_, T> {
        self.limit_growing(inner, Growth::None)
    }

    const fn limit_growing<T>(&self, inner: T, growth: Growth) -> Limited<'_, T> {
        Limited {
            inner,
            budget: self,
            growth,
        }
    }

    /// Returns why decoding failed: a limit, or malformed bytes.
    pub fn cause(&self) -> DecodeError {
        self.reached.get().unwrap_or(DecodeError::Malformed)
    }

    fn pay<E: Error>(&self, bytes: usize) -> Result<(), E> {
        match self.memory.get().checked_sub(bytes) {
            Some(left) => {
                self.memory.set(left);
                Ok(())
            }
            None => Err(self.fail(DecodeError::TooLarge)),
        }
    }

    /// Charges the spare room of a list or set: at first, a list has room for four, a set a node of
    /// eleven.
    fn pay_in_list<E: Error>(&self, growth: Growth, size: usize) -> Result<(), E> {
        match growth {
            Growth::None | Growth::Further => Ok(()),
            Growth::First => self.pay(size.saturating_mul(3)),
        }
    }

    /// Charges the spare room of a map for a key or a value of `size` bytes. A `BTreeMap` has nodes
    /// of eleven, filled with at least five: at worst 2.6 times the entries and 7 bytes each. A
    /// `HashMap` has at worst 16 places for 7 entries, and a byte for each.
    fn pay_in_map<E: Error>(&self, growth: Growth, size: usize) -> Result<(), E> {
        match growth {
            Growth::None => Ok(()),
            Growth::First => self.pay(size.saturating_mul(10).saturating_add(32)),
            Growth::Further => self.pay(size.saturating_mul(2).saturating_add(4)),
        }
    }

    fn fail<E: Error>(&self, limit: DecodeError) -> E {
        self.reached.set(Some(limit));
        E::custom(limit)
    }

    /// Charges a value of type `V`, and reads it one level deeper.
    fn value<V, E: Error>(&self, read: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        self.pay(size_of::<V>().max(1))?;
        let depth = self.depth.get();
        let deeper = depth.checked_sub(1);
        self.depth
            .set(deeper.ok_or_else(|| self.fail(DecodeError::TooDeep))?);
        let value = read();
        self.depth.set(depth);
        value
    }
}

/// A part of serde's interface with the budget applied.
#[derive(Debug)]
pub struct Limited<'b, T> {
    inner: T,
    budget: &'b Budget,
    growth: Growth,
}

/// Spare room that a container allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    /// None: each value has a place.
    None,
    /// It grows; the first value follows.
    First,
    /// It grows.
    Further,
}

macro_rules! deserialize {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {$(
        fn $name<V: Visitor<'de>>(
            self,
            $($argument: $kind,)*
            visitor: V,
        ) -> Result<V::Value, D::Error> {
            let Self { inner, budget, .. } = self;
            budget.value(|| inner.$name($($argument,)* budget.limit(visitor)))
        }
    )*};
}

macro_rules! deserialize_growing {
    ($($name:ident;)*) => {$(
        fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            let Self { inner, budget, .. } = self;
            budget.value(|| inner.$name(budget.limit_growing(visitor, Growth::First)))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Limited<'_, D> {
    type Error = D::Error;

    deserialize! {
        deserialize_bool();
        deserialize_i8();
        deserialize_i16();
        deserialize_i32();
        deserialize_i64();
        deserialize_i128();
        deserialize_u8();
        deserialize_u16();
        deserialize_u32();
        deserialize_u64();
        deserialize_u128();
        deserialize_f32();
        deserialize_f64();
        deserialize_char();
        deserialize_str();
        deserialize_string();
        deserialize_bytes();
        deserialize_byte_buf();
        deserialize_option();
        deserialize_unit();
        deserialize_unit_struct(name: &'static str);
        deserialize_newtype_struct(name: &'static str);
        deserialize_tuple(len: usize);
        deserialize_tuple_struct(name: &'static str, len: usize);
        deserialize_struct(name: &'static str, fields: &'static [&'static str]);
        deserialize_enum(name: &'static str, variants: &'static [&'static str]);
        deserialize_identifier();
        deserialize_ignored_any();
    }
    deserialize_growing! {
        deserialize_any;
        deserialize_seq;
        deserialize_map;
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// Forwards a plain value.
macro_rules! visit {
    ($($name:ident($kind:ty);)*) => {$(
        fn $name<E: Error>(self, value: $kind) -> Result<V::Value, E> {
            self.inner.$name(value)
        }
    )*};
}

/// Forwards text or bytes after charging their length.
macro_rules! visit_long {
    ($($name:ident($kind:ty);)*) => {$(
        fn $name<E: Error>(self, value: $kind) -> Result<V::Value, E> {
            self.budget.pay(value.len())?;
            self.inner.$name(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Limited<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    visit! {
        visit_bool(bool);
        visit_i8(i8);
        visit_i16(i16);
        visit_i32(i32);
        visit_i64(i64);
        visit_i128(i128);
        visit_u8(u8);
        visit_u16(u16);
        visit_u32(u32);
        visit_u64(u64);
        visit_u128(u128);
        visit_f32(f32);
        visit_f64(f64);
        visit_char(char);
    }
    visit_long! {
        visit_str(&str);
        visit_borrowed_str(&'de str);
        visit_string(String);
        visit_bytes(&[u8]);
        visit_borrowed_bytes(&'de [u8]);
        visit_byte_buf(Vec<u8>);
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(self.budget.limit(value))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(self.budget.limit(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, values: A) -> Result<V::Value, A::Error> {
        let values = self.budget.limit_growing(values, self.growth);
        self.inner.visit_seq(values)
    }

    fn visit_map<A: MapAccess<'de>>(self, values: A) -> Result<V::Value, A::Error> {
        let values = self.budget.limit_growing(values, self.growth);
        self.inner.visit_map(values)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, value: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(self.budget.limit(value))
    }
}

/// Claimed lengths are not forwarded, by default: lists grow as their values arrive.
impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Limited<'_, A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, A::Error> {
        let value = self.inner.next_element_seed(self.budget.limit(seed))?;
        if value.is_some() && self.growth != Growth::None {
            self.budget
                .pay_in_list(self.growth, size_of::<T::Value>())?;
            self.growth = Growth::Further;
        }
        Ok(value)
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Limited<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let key = self.inner.next_key_seed(self.budget.limit(seed))?;
        if key.is_some() {
            self.budget.pay_in_map(self.growth, size_of::<K::Value>())?;
        }
        Ok(key)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        let value = self.inner.next_value_seed(self.budget.limit(seed))?;
        self.budget.pay_in_map(self.growth, size_of::<T::Value>())?;
        if self.growth == Growth::First {
            self.growth = Growth::Further;
        }
        Ok(value)
    }
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for Limited<'_, T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T::Value, D::Error> {
        // Some values read nothing, and are charged here only.
        self.budget.pay(1)?;
        self.inner.deserialize(self.budget.limit(deserializer))
    }
}

impl<'b, 'de, A: EnumAccess<'de>> EnumAccess<'de> for Limited<'b, A> {
    type Error = A::Error;
    type Variant = Limited<'b, A::Variant>;

    fn variant_seed<T: DeserializeSeed<'de>>(
        self,
        seed: T,
    ) -> Result<(T::Value, Self::Variant), A::Error> {
        let Self { inner, budget, .. } = self;
        let (value, variant) = inner.variant_seed(budget.limit(seed))?;
        Ok((value, budget.limit(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Limited<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, A::Error> {
        self.inner.newtype_variant_seed(self.budget.limit(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.inner.tuple_variant(len, self.budget.limit(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.inner
            .struct_variant(fields, self.budget.limit(visitor))
    }
}
