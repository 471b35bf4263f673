//! Message types, their codec, and the registry that dispatches them.

use core::fmt;
use core::marker::PhantomData;
use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Catalogue;
use crate::slots::SessionId;

/// A message type with its id and version.
pub trait Typed: Serialize + DeserializeOwned {
    /// Its id on the wire, unique in the application.
    const ID: u16;
    /// Increment with each change of its fields or their order.
    const VERSION: u16;
}

/// Encodes and decodes values.
pub trait Codec {
    /// Identifies the codec in a [`Catalogue`].
    const CODE: u8;

    /// Appends `value` to `out`.
    ///
    /// # Errors
    ///
    /// [`EncodeError`] if the codec cannot represent it; the content of `out` is then invalid.
    fn encode<T: Serialize>(value: &T, out: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// Decodes a value from all of `bytes`.
    ///
    /// # Errors
    ///
    /// [`DecodeError`].
    fn decode<T: DeserializeOwned>(bytes: &[u8], limits: Limits) -> Result<T, DecodeError>;
}

/// Limits of decoding one message.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory of its values in bytes; 1 MiB. Each value counts with its size in memory, at least 1;
    /// text and bytes also with their length. So this bounds the work too. The first value in a
    /// list or set counts four times. A map counts keys and values three times plus 4 bytes, the
    /// first of eleven eleven times plus 32 bytes. Growing containers may briefly hold three times
    /// as much, a set of small numbers four times. A `LinkedList` is not bounded: one of bytes
    /// holds 24 times its count.
    pub memory_max: usize,
    /// Nesting depth; 128. It bounds the stack.
    pub depth_max: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_max: 1 << 20,
            depth_max: 128,
        }
    }
}

/// Why a value was not encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The codec cannot represent it, for example a list of unknown length.
    Unsupported,
    /// Its type is not registered.
    Unregistered(u16),
}

wire::error_text! { EncodeError {
    Self::Unsupported => "the codec has no form for the value",
    Self::Unregistered(id) => "message type {id} is not registered",
}}

/// Why bytes were not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// They are truncated or do not match the type.
    Malformed,
    /// Trailing bytes.
    Trailing,
    /// The value exceeds [`Limits::memory_max`] or the codec's own limit.
    TooLarge,
    /// The value exceeds [`Limits::depth_max`].
    TooDeep,
}

wire::error_text! { DecodeError {
    Self::Malformed => "the bytes are no value of the type",
    Self::Trailing => "bytes are left over behind the value",
    Self::TooLarge => "the value takes more memory than the limit",
    Self::TooDeep => "the value goes deeper than the limit",
}}

/// Dispatches an application's messages of all types to a state `S`.
pub struct Registry<C, S> {
    rows: BTreeMap<u16, Row<S>>,
    limits: Limits,
    codec: PhantomData<fn() -> C>,
}

struct Row<S> {
    version: u16,
    /// Decodes and handles a message; `None` for types that are only sent.
    take: Option<Take<S>>,
}

/// Handles the bytes after a message's id.
type Take<S> =
    Box<dyn Fn(&mut S, SessionId, &[u8], Limits) -> Result<(), DecodeError> + Send + Sync>;

impl<C: Codec, S> Registry<C, S> {
    /// Creates an empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self {
            rows: BTreeMap::new(),
            limits: Limits::default(),
            codec: PhantomData,
        }
    }

    /// Sets the limits of decoding a message.
    #[must_use]
    pub const fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Adds a type; `handler` gets its messages with their session.
    ///
    /// # Errors
    ///
    /// [`TakenId`] if the id is taken or the type was already added.
    pub fn takes<T: Typed>(
        self,
        handler: impl Fn(&mut S, SessionId, T) + Send + Sync + 'static,
    ) -> Result<Self, TakenId> {
        let take: Take<S> = Box::new(move |state, session, bytes, limits| {
            handler(state, session, C::decode(bytes, limits)?);
            Ok(())
        });
        self.with_row::<T>(Some(take))
    }

    /// Adds a type that is only sent.
    ///
    /// # Errors
    ///
    /// As [`takes`](Self::takes).
    pub fn sends<T: Typed>(self) -> Result<Self, TakenId> {
        self.with_row::<T>(None)
    }

    fn with_row<T: Typed>(mut self, take: Option<Take<S>>) -> Result<Self, TakenId> {
        let version = T::VERSION;
        if self.rows.insert(T::ID, Row { version, take }).is_some() {
            return Err(TakenId(T::ID));
        }
        Ok(self)
    }

    /// Returns what both ends must agree on.
    #[must_use]
    pub fn catalogue(&self) -> Catalogue {
        let types = self.rows.iter().map(|(id, row)| (*id, row.version));
        Catalogue::new(C::CODE, &types.collect())
    }

    /// Replaces the content of `out` by the encoded `message`.
    ///
    /// # Errors
    ///
    /// [`EncodeError`]; the content of `out` is then invalid.
    pub fn encode<T: Typed>(&self, message: &T, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if !self.rows.contains_key(&T::ID) {
            return Err(EncodeError::Unregistered(T::ID));
        }
        out.clear();
        out.extend_from_slice(&T::ID.to_be_bytes());
        C::encode(message, out)
    }

    /// Decodes a message from `session`, calls the handler of its type, and returns its id.
    ///
    /// # Errors
    ///
    /// [`DispatchError`]; `state` is unchanged. Count it, or close the session.
    pub fn dispatch(
        &self,
        state: &mut S,
        session: SessionId,
        message: &[u8],
    ) -> Result<u16, DispatchError> {
        let [high, low, body @ ..] = message else {
            return Err(DispatchError::NoId);
        };
        let id = u16::from_be_bytes([*high, *low]);
        let row = self.rows.get(&id).ok_or(DispatchError::UnknownId(id))?;
        let take = row.take.as_ref().ok_or(DispatchError::NotTaken(id))?;
        take(state, session, body, self.limits)
            .map_err(|error| DispatchError::Undecodable { id, error })?;
        Ok(id)
    }
}

impl<C: Codec, S> Default for Registry<C, S> {
    fn default() -> Self {
        Self::new()
    }
}

wire::debug_fields!([C, S] Registry<C, S>, this { ids: this.rows.keys() });

/// Two types have this id, or one was added twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenId(pub u16);

impl fmt::Display for TakenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message type {} was added twice", self.0)
    }
}

impl core::error::Error for TakenId {}

/// Why a message was not dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DispatchError {
    /// It is shorter than an id.
    NoId,
    /// Unknown id.
    UnknownId(u16),
    /// Its type is only sent.
    NotTaken(u16),
    /// It is malformed, or exceeds the limits.
    Undecodable {
        /// The type's id.
        id: u16,
        /// The error.
        error: DecodeError,
    },
}

wire::error_text! { DispatchError {
    Self::NoId => "the message is shorter than an id",
    Self::UnknownId(id) => "no message type has id {id}",
    Self::NotTaken(id) => "message type {id} is only sent",
    Self::Undecodable { id, error } => "message type {id}: {error}",
}}
