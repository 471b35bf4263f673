//! The registry of an application's message types.

use core::fmt;
use core::marker::PhantomData;
use std::collections::BTreeMap;

use super::{Catalogue, Codec, DecodeError, EncodeError, Limits, Typed};
use crate::slots::SessionId;

/// Dispatches an application's messages of all types to a state `S`.
pub struct Registry<C, S> {
    rows: BTreeMap<u16, Row<S>>,
    limits: Limits,
    codec: PhantomData<fn() -> C>,
}

/// One type.
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

impl<C, S> fmt::Debug for Registry<C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("ids", &self.rows.keys())
            .finish_non_exhaustive()
    }
}

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

impl fmt::Display for DispatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoId => f.write_str("the message is shorter than an id"),
            Self::UnknownId(id) => write!(f, "no message type has id {id}"),
            Self::NotTaken(id) => write!(f, "message type {id} is only sent"),
            Self::Undecodable { id, error } => write!(f, "message type {id}: {error}"),
        }
    }
}

impl core::error::Error for DispatchError {}
