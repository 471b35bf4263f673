//! All types of an application, and what is done with a message of each.

use core::fmt;
use core::marker::PhantomData;
use std::collections::BTreeMap;

use super::{Catalogue, Codec, DecodeError, EncodeError, Limits, Typed};
use crate::slots::SessionId;

/// Knows the types of an application's messages, and what of `S` takes each.
pub struct Registry<C, S> {
    rows: BTreeMap<u16, Row<S>>,
    limits: Limits,
    codec: PhantomData<fn() -> C>,
}

/// One type.
struct Row<S> {
    version: u16,
    /// Decodes a message and gives it to the application; `None` for types that are only sent.
    take: Option<Take<S>>,
}

/// What is done with the bytes behind a message's id.
type Take<S> =
    Box<dyn Fn(&mut S, SessionId, &[u8], Limits) -> Result<(), DecodeError> + Send + Sync>;

impl<C: Codec, S> Registry<C, S> {
    /// Makes a registry that knows no type.
    #[must_use]
    pub fn new() -> Self {
        Self {
            rows: BTreeMap::new(),
            limits: Limits::default(),
            codec: PhantomData,
        }
    }

    /// Replaces what decoding a message may take.
    #[must_use]
    pub const fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Adds a type, whose messages go to `handler` with the session that sent them.
    ///
    /// # Errors
    ///
    /// [`TakenId`] where another type has the same id, or this one is known already.
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

    /// Replaces the content of `out` by `message`, ready to be sent.
    ///
    /// # Errors
    ///
    /// [`EncodeError`]; what `out` holds then is not to be sent.
    pub fn encode<T: Typed>(&self, message: &T, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if !self.rows.contains_key(&T::ID) {
            return Err(EncodeError::Unregistered(T::ID));
        }
        out.clear();
        out.extend_from_slice(&T::ID.to_be_bytes());
        C::encode(message, out)
    }

    /// Decodes a message that `session` has sent, gives it to what takes its type, and returns its
    /// id.
    ///
    /// # Errors
    ///
    /// [`DispatchError`]; `state` was not touched. Count it, or let the session go.
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

/// Why a message went nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DispatchError {
    /// It is shorter than an id.
    NoId,
    /// No type has its id.
    UnknownId(u16),
    /// Its type is only sent.
    NotTaken(u16),
    /// It is no value of its type, or goes beyond the limits.
    Undecodable {
        /// The type's id.
        id: u16,
        /// What is wrong with it.
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
